"""A model with a part that torch.jit has scripted: all but that part is changed, saved, grouped and watched."""

import pytest
import torch
from torch import nn

import normkit as nk

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.scripted = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()))

    def forward(self, x):
        return self.scripted(self.norm(self.first(x)))


def test_it_is_swapped_saved_and_loaded(tmp_path):
    model, x = Model(), torch.randn(4, 8)
    nk.swap(model, {"layernorm": "rmsnorm"})
    nk.save(model, tmp_path / "out", original=Model())
    loaded = nk.load(f"{__name__}:Model@{tmp_path / 'out'}")
    assert isinstance(loaded.norm, nk.RMSNorm)
    torch.testing.assert_close(loaded(x), model.eval()(x), rtol=0, atol=0)


def test_its_parameters_are_grouped_and_its_weights_planned():
    model = Model()
    groups = nk.param_groups(model, "muon", inputs=torch.randn(4, 8))
    assert {id(p) for group in groups for p in group["params"]} == {id(p) for p in model.parameters()}
    nk.weight.apply(model, "weight-standardization", where="first")
    assert not torch.equal(model.first.weight, model.first.parametrizations.weight.original)


def test_what_is_around_it_is_watched():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer, every=1) as seen:
        for _ in range(4):
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert set(seen.history().of("rms")) >= {"first", "norm"}
    assert "Not seen" not in str(seen.diagnosis())
