"""Each long experiment in miniature: its numbers are those on record.

    python tests/claims/test_claim_beginnings.py    # records them anew

On record of a measure and of its control, from seed 0, is what it returns, and on its way its losses, gradients and
answers, and every number that it takes of a tensor. A loop of many steps takes two, and is on record at its full
length; a constant that is made small is on record as it is. With another one, a stored verdict is not that of the code.
"""

import builtins
import functools
import inspect
import json
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
import torch
from test_claim_properties import PROPERTIES, is_short, named
from test_claim_trainings import KNOWN, TRAININGS
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import normkit as nk
from normkit.claims import engine, shelf, training

RECORD = Path(__file__).with_suffix(".jsonl")
OURS = "normkit.claims."
LONG, STEPS, ENDS = 20, 2, 6  # loops that are cut, to how many; notes of a kind that are kept at either end
SMALL = {
    "activation.batchnorm_linear_bounded": {"DEPTHS": (4, 8, 16)},
    "activation.broadcast_residual": {"SHAPE": (2, 40, 40, 10)},
    "activation.graphsaint_norm": {"COUNTS": (100, 200)},
    "activation.rmsnorm": {"ROWS": 32},
    "attention._cost": {"LENGTHS": (16, 32)},
    "attention.lightning": {"LENGTHS": (16, 64, 128, 256)},
    "attention.softmax_free": {"LENGTHS": (64, 256)},
    "beds": {"SAMPLES": 64},
    "density._modes": {"CHAINS": 60, "STEPS": 16},
    "density._wells": {"CHAINS": 40, "STEPS": 14, "LAGS": 3},
    "density.cinc_conv": {"CHANNELS": 2, "SIDE": 6},
    "density.ebflow": {"DIMS": (8, 16)},
    "density.flow_hmc": {"CHAINS": 40},
    "density.flow_imh": {"CHAINS": 40},
    "density.free_form_flow": {"COUNTS": (4, 8)},
    "features": {"DRAWS": 2},
    "gradient.gradient_normalized_smoothness": {"MOST": 19, "GOAL": 0.1},
    "images": {"BASIS_STEPS": 2},
    "inference.adaptive_weighted_rejection_sampling": {"DRAWS": 20},
    "language": {"HELD": 16},
    "manifold.lp_dictionary": {"MANY": 400, "FEW": 200, "PROBLEMS": 2},
    "plane": {"DRAWS": 2},
    "steps": {"EACH": 1, "SPIKED": 1},
    "tasks": {"DRAWS": 2, "TASKS": 2, "STEPS": 2},
    "training": {"DRAWS": 2},
    "weight.alds_decompose": {"NETS": 2},
    "weight.group_orthogonality": {"FILTERS": 64},
    "weight.nf_block": {"DEPTHS": (2, 2)},
}
SIDES = "measure", "control"
UNSTEADY = {  # Adam's first step of a weight that changes nothing goes either way; products of bfloat16; a fit at infinity
    "adamp-lengths": 0.2,
    "alpha-batchnorm-mixture": 0.05,
    "normuon-even-rows": 1e-2,
    "tail-adaptive-base-heavy-margin": 0.05,
}
DATA = {"digits", "letters"}  # caches that no constant changes
LENGTHY = [*(entry for entry in PROPERTIES if not is_short(entry)), *TRAININGS, *KNOWN]


class Work(TorchDispatchMode):
    """A clock that every machine reads alike: a second is a number that an operation returned."""

    spent = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.spent += sum(leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        return result


class Miniature:
    """A run of an experiment, and what it shows on its way."""

    def __init__(self):
        self.notes, self.loops, self.work = {}, set(), None

    def run(self, measure):
        """What a measure of seed 0 returns, and what is on record beside it."""
        with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]):
            self.shorten(patch)
            self.watch(patch)
            forget()
            number = engine._drawn(measure, 0)
            forget()
            if self.work is not None:
                self.work.__exit__(None, None, None)
        kept = {kind: own[:ENDS] + own[ENDS:][-ENDS:] for kind, own in sorted(self.notes.items())}
        return {"number": number, **kept, "loops": sorted(self.loops)}

    def shorten(self, patch):
        """Make constants small and loops short; a rate is not searched, a clock counts work."""
        for name, constants in SMALL.items():
            for constant, value in constants.items():
                patch.setattr(f"{OURS}{name}.{constant}", value)
        for module in modules():
            patch.setattr(module, "range", self.range, raising=False)
        for method in (nk.EquiangularBasis, nk.SparseETFClassifier):
            patch.setattr(method, "generate", self.generation(method.generate))
        patch.setattr(training, "_rate", lambda scores, rates, run: sum(rates) / len(rates))
        patch.setattr(time, "process_time", self.clock)
        patch.setattr(tracemalloc, "get_traced_memory", lambda: (0, 0))

    def watch(self, patch):
        """Note what experiments ask torch for."""
        patch.setattr(torch.Tensor, "backward", self.noting("losses", torch.Tensor.backward, lambda _, loss, *others: loss))
        patch.setattr(torch.Tensor, "argmax", self.noting("scores", torch.Tensor.argmax, lambda _, x, *others: x))
        patch.setattr(torch.Tensor, "item", self.noting("items", torch.Tensor.item))
        patch.setattr(torch.autograd, "grad", self.noting("gradients", torch.autograd.grad))
        patch.setattr(torch.func, "vmap", self.mapping(torch.func.vmap))

    def noting(self, kind, function, shown=lambda result, *args: result):
        """A function whose calls from experiments are noted."""

        @functools.wraps(function)
        def noted(*args, **kwargs):
            result = function(*args, **kwargs)
            if sys._getframe(1).f_globals["__name__"].startswith(OURS):
                parts = [torch.as_tensor(part).detach().double().norm() for part in tree_leaves(shown(result, *args))]
                self.notes.setdefault(kind, []).append(torch.stack(parts).norm().tolist())
            return result

        return noted

    def mapping(self, vmap):
        return lambda *args, **options: self.noting("models", vmap(*args, **options))

    def range(self, *args):
        whole = builtins.range(*args)
        if len(whole) < LONG:
            return whole
        self.loops.add(len(whole))
        return whole[:STEPS]

    def generation(self, generate):
        """A descent of a method that an experiment calls, in a few steps."""

        def short(*args, **kwargs):
            call = inspect.signature(generate).bind(*args, **kwargs)
            call.apply_defaults()
            self.loops.add(call.arguments["steps"])
            return generate(**{**call.arguments, "steps": STEPS})

        return short

    def clock(self):
        if self.work is None:
            self.work = Work()
            self.work.__enter__()
        return self.work.spent


def modules():
    return [module for name, module in sys.modules.items() if name.startswith(OURS) and module is not shelf]


def forget():
    """Empty the caches of what was trained."""
    for name, value in [pair for module in modules() for pair in vars(module).items()]:
        if isinstance(value, functools._lru_cache_wrapper) and name not in DATA:
            value.cache_clear()


def beginning(entry):
    """What is on record of an experiment."""
    return {"case": named(entry), **{side: Miniature().run(getattr(entry.claim, side)) for side in SIDES}}


def constants(name):
    """What a module's constants are that are made small."""
    module = sys.modules[OURS + name]
    return {"case": name, **{constant: getattr(module, constant) for constant in SMALL[name]}}


@functools.cache
def recorded():
    return {line["case"]: line for line in map(json.loads, RECORD.read_text().splitlines())}


def assert_alike(now, then, within):
    """To the digits that another processor has too."""
    assert now["loops"] == then["loops"]
    assert now.keys() == then.keys()
    for kind in now:
        rel = within if kind in ("number", "items", "scores") else 1e-3
        assert now[kind] == pytest.approx(then[kind], rel=rel, abs=5e-5, nan_ok=True), kind


@pytest.mark.parametrize("entry", LENGTHY, ids=named)
def test_an_experiment_in_miniature_gives_the_numbers_on_record(entry):
    now, then = beginning(entry), recorded()[named(entry)]
    for side in SIDES:
        assert_alike(now[side], then[side], UNSTEADY.get(named(entry), 1e-3))


@pytest.mark.parametrize("name", SMALL)
def test_what_is_small_in_miniature_is_as_large_as_when_the_verdicts_were_stored(name):
    assert json.loads(json.dumps(constants(name))) == recorded()[name]


if __name__ == "__main__":
    torch.set_num_threads(1)
    lines = [*map(constants, SMALL), *map(beginning, LENGTHY)]
    RECORD.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
