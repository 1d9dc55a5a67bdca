"""What every module begins with: a number that is another by mistake is seen, and a change of one is looked at.

`python tests/house/test_beginnings.py` writes them down again.
"""

import json
import pathlib

import pytest
import torch

import normkit as nk
from normkit.contract.subject import METHODS

RECORD = pathlib.Path(__file__).with_name("beginnings.json")
KNOWN = json.loads(RECORD.read_text()) if RECORD.exists() else {}


def beginnings(name):
    """Of each tensor the shape and what it holds: one number, or the mean and the deviation of several."""
    torch.manual_seed(0)
    module = nk.card(name).small(8)
    found = {}
    for key, tensor in [*module.named_parameters(), *module.named_buffers()]:
        values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        values = values.detach().double().flatten()
        same = values.numel() and bool((values == values[0]).all())
        held = [values[0].item()] if same else [values.mean().item(), values.std().item()] if values.numel() > 1 else []
        found[key] = [list(tensor.shape), [float(f"{value:.6g}") for value in held]]
    return found


@pytest.mark.parametrize("name", METHODS)
def test_a_module_begins_as_it_is_written_down(name):
    found, known = beginnings(name), KNOWN[name]
    assert found.keys() == known.keys(), "run `python tests/house/test_beginnings.py`"
    for key, (shape, values) in found.items():
        assert shape == known[key][0], key
        assert values == pytest.approx(known[key][1], rel=1e-3, abs=1e-4, nan_ok=True), key


def test_nothing_else_is_written_down():
    assert KNOWN.keys() == set(METHODS)


if __name__ == "__main__":
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(beginnings(name))}" for name in METHODS)
    RECORD.write_text(f"{{\n{text}\n}}\n")
