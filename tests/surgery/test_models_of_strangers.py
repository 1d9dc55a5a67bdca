"""Models that nobody here has written: refused in a sentence, and nothing is passed over in silence."""

import sys
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk
from threads import each_rank


class ChannelsFirst(nn.Module):
    """A layer norm over axis 1, of inputs with a fixed number of axes."""

    def __init__(self, space):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(8) + 0.5), nn.Parameter(torch.randn(8))
        self.space = space

    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        y = centred / (centred.square().mean(1, keepdim=True) + 1e-6).sqrt()
        shape = (1, -1) + (1,) * self.space
        return y * self.weight.view(shape) + self.bias.view(shape)


@pytest.mark.parametrize(("space", "conv"), [(1, nn.Conv1d), (2, nn.Conv2d), (3, nn.Conv3d)])
def test_gain_and_shift_of_a_norm_of_any_number_of_axes_are_folded(space, conv):
    model = nn.Sequential(conv(8, 8, 1), ChannelsFirst(space), conv(8, 4, 1)).eval()
    x = torch.randn(2, 8, *(5,) * space)
    before = model(x)
    assert [change.became for change in nk.fold(model, x)] == ["without gain and shift, which are in 2"]
    torch.testing.assert_close(model(x), before)


@pytest.mark.parametrize("verb", [nk.fold, nk.fuse, lambda m, x: nk.convert(m, "pre-rmsnorm", x)])
def test_a_scripted_model_is_refused_in_a_sentence(verb):
    model = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))).eval()
    with pytest.raises(ValueError, match=r"the model is scripted; hand it in as it was before torch\.jit"):
        verb(model, torch.randn(2, 8))


def test_a_scripted_norm_is_named_and_the_others_change():
    model = nn.Sequential(nn.Linear(8, 8), torch.jit.script(nn.LayerNorm(8)), nn.LayerNorm(8))
    assert "is scripted" in nk.recognize(model)["1"].why_not
    assert [change.site for change in nk.swap(model, "rmsnorm") if change.became] == ["2"]


def test_a_norm_called_as_a_function_is_named():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.layer_norm = nn.Linear(8, 8), nn.LayerNorm(8)

        def forward(self, x):
            return F.layer_norm(self.layer(self.layer_norm(x)), (8,))

    class Other(Own):
        def forward(self, x):
            return self.layer(self.layer_norm(x))

    seen = nk.recognize(nn.Sequential(Own(), Other()))
    assert list(seen.rest) == ["0"]
    assert "calls layer_norm itself" in seen["0"].why_not
    assert list(seen.found) == ["0.layer_norm", "1.layer_norm"]


def test_norms_in_a_row_are_a_table_as_a_model_is():
    parts = nk.recognize(nn.Sequential(nn.LayerNorm(8), nn.ReLU(), nn.BatchNorm1d(8)))
    assert {name: match.name for name, match in parts.found.items()} == {"0": "layernorm", "2": "batchnorm"}
    assert nk.recognize(nn.Sequential(nn.LayerNorm(8))).name == "layernorm"
    assert nk.recognize(nn.ReLU()) is None


def test_what_was_not_measured_is_empty_in_the_table():
    class InFloat32(nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.float()).to(x.dtype)

    model = nn.Sequential(nn.Linear(8, 8), InFloat32(8)).bfloat16()
    model[1].float()
    assert "nan" not in str(nk.recognize(model))


def test_a_model_with_a_reparametrized_layer_is_saved_and_loaded(tmp_path, monkeypatch):
    """Each such layer has a class of its own, also in a model that is built anew of the same code."""

    def build():
        torch.manual_seed(0)
        return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), nn.LayerNorm(8))

    monkeypatch.setitem(sys.modules, "strangers", types.SimpleNamespace(build=build))
    model = build()
    nk.swap(model, "dyt")
    nk.save(model, tmp_path / "kept", original=build())
    again, x = nk.load(f"strangers:build@{tmp_path / 'kept'}"), torch.randn(2, 8)
    assert isinstance(again[1], nk.DyT)
    torch.testing.assert_close(again(x), model.eval()(x))


def test_a_norm_in_an_exported_graph_is_named():
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.RMSNorm(8)).eval()
    (why_not,) = [
        match.why_not for match in nk.recognize(torch.export.export(model, (torch.ones(2, 8),)).module()).rest.values()
    ]
    assert why_not == "its forward calls layer_norm and rms_norm itself, and only a module can be exchanged"


def test_a_model_that_was_dispatched_says_what_to_take_off():
    hooks = pytest.importorskip("accelerate.hooks")
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    hooks.add_hook_to_module(model[1], hooks.AlignDevicesHook("cpu"))
    assert "remove_hook_from_submodules" in nk.recognize(model).rest["1"].why_not
    hooks.remove_hook_from_submodules(model)
    other = nn.Sequential(nn.LayerNorm(8), nn.LayerNorm(8))
    other[0].forward = other[1].forward
    assert "put on the instance" in nk.recognize(other).rest["0"].why_not
    assert nk.recognize(model).found["1"].name == "layernorm"


def test_a_sharded_model_says_that_it_is_wanted_as_it_was_before():
    def sharded():
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        return nk.recognize(
            torch.distributed.fsdp.fully_shard(nn.Sequential(nn.Linear(8, 8), nk.RMSNorm(8)), mesh=mesh)
        )

    (seen,) = each_rank(1, sharded)
    assert seen.rest["1"].why_not == "weight is a DTensor: hand in the model as it was before it was sharded"
