"""In float64 no step rounds through float32, which goldens, compared to six digits, do not show."""

import traceback

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import normkit as nk
from normkit.contract.goldens.places import OURS
from normkit.contract.goldens.replay import Golden, functions

LONG = {"sparse-etf-classifier"}  # its basis takes five seconds a case, and is no step
CASES = sorted(path.parent.name for path in OURS.glob("*/*.npz") if path.parent.name not in LONG)


class Narrowed(TorchDispatchMode):
    """Collect the lines that make float32 of whole numbers, booleans or a Python number, and lose digits thereby."""

    def __init__(self):
        super().__init__()
        self.lines = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dtype == torch.float32 and not any(map(_floating, tree_leaves(args))):
            fine = out.double() * 4096  # halves, quarters and the like lose nothing
            if not torch.equal(fine, fine.round()):
                stack = traceback.extract_stack()[:-1]
                *_, frame = [frame for frame in stack if frame.filename.startswith(nk.__path__[0])] or stack
                self.lines.add(f"{frame.filename}:{frame.lineno}: {frame.line}")
        return out


def _floating(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


class Watched(Golden):
    """A golden whose steps are watched; a module is built in float32, and then made float64."""

    def replay_step(self, *step):
        with self.narrowed:
            super().replay_step(*step)

    def replay_optimizer(self):
        with self.narrowed:
            super().replay_optimizer()


@pytest.mark.parametrize("name", dict.fromkeys(CASES))
def test_float64_stays_float64(name):
    narrowed = Narrowed()
    for path in sorted((OURS / name).glob("*.npz")):
        golden = Watched(path, functions(OURS))
        golden.narrowed = narrowed
        if golden.dtype == torch.float64:
            golden.replay()
    assert not narrowed.lines


def test_a_share_of_whole_numbers_is_seen():
    with Narrowed() as narrowed:
        share = torch.tensor([3]) / 7
        assert (share.double() - 3 / 7).abs() > 1e-9
        assert torch.tensor([3]) / 8 == 0.375
    assert len(narrowed.lines) == 1
