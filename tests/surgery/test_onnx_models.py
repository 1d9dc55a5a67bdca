"""Models that were folded, fused or swapped go to ONNX, and onnxruntime gives their numbers for any batch size."""

import copy

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.surgery.saving import plain_state
from onnx_sessions import session


def model():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.RMSNorm(8), nn.Linear(8, 3))
    for norm in (made[1], made[4]):
        nn.init.uniform_(norm.weight, 0.5, 2)
    return made.eval()


CHANGES = {
    "folded": lambda made, x: nk.fold(made, x).model,
    "fused": lambda made, x: nk.fuse(made, x).model,
    "swapped": lambda made, x: nk.swap(made, {"layernorm": "derf"}, example=x).model,
}


@pytest.mark.filterwarnings("ignore")  # the exporter's own, about itself
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_gives_the_same_numbers_in_onnxruntime(change):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    changed = CHANGES[change](model(), x).eval()
    exported = session(changed, [x], [0])
    for batch in (4, 7):
        given = torch.randn(batch, 6)
        [got] = exported.run(None, {exported.get_inputs()[0].name: given.numpy()})
        torch.testing.assert_close(torch.from_numpy(got), changed(given).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("change", ["folded", "fused"])
def test_a_folded_or_fused_state_loads_into_the_classes_of_before(change):
    x, before = torch.randn(4, 6), model()
    changed = CHANGES[change](copy.deepcopy(before), x).eval()
    other = model()
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    other.load_state_dict(plain_state(before, changed, x))
    assert {type(part).__module__.partition(".")[0] for part in other.modules()} == {"torch"}
    torch.testing.assert_close(other(x), changed(x))


def test_what_the_old_classes_cannot_hold_is_refused():
    x, before = torch.randn(4, 6), model()
    with pytest.raises(ValueError, match=r"'1' is by now Derf"):
        plain_state(before, CHANGES["swapped"](copy.deepcopy(before), x), x)
    with pytest.raises(ValueError, match=r"differ by .*; '1' is by now L1LayerNorm"):  # which has the same entries
        plain_state(before, nk.swap(copy.deepcopy(before), {"layernorm": "l1-layernorm"}).model, x)
    other = copy.deepcopy(before)
    other[3] = nn.ReLU()
    with pytest.raises(ValueError, match="the old model's outputs differ by"):
        plain_state(before, other, x)
