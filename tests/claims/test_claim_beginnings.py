"""Each claim in miniature, its measure and its control from seed 0: the numbers are those on record.

    python tests/claims/test_claim_beginnings.py    # records them anew

On record is what a measure returns and, on its way, its losses, gradients and answers, what the methods are made with
and give, and every number that it takes of a tensor. A loop of many steps takes two, and its length is on record; a
constant that is made small is on record as it is. Where one of them is another, a stored verdict is not that of the
code.
"""

import builtins
import functools
import hashlib
import inspect
import json
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
import torch
from test_claim_identities import IDENTITIES
from test_claim_properties import PROPERTIES, is_short, named
from test_claim_trainings import KNOWN, TRAININGS
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import normkit as nk
from normkit.claims import engine, shelf, training
from normkit.lab.plan import data

RECORD = Path(__file__).with_suffix(".jsonl")
OURS = "normkit.claims."
SIDES = "measure", "control"
LONG, STEPS, ENDS = 20, 2, 6  # loops that are cut, to how many; notes of a kind that are kept at either end
EPS = 1e-4  # Adam's, so that a gradient of rounding takes no step
SMALL = {
    "activation.batchnorm_linear_bounded": {"DEPTHS": (4, 8, 16)},
    "activation.broadcast_residual": {"SHAPE": (2, 40, 40, 10)},
    "activation.graphsaint_norm": {"COUNTS": (100, 200)},
    "activation.rmsnorm": {"ROWS": 32},
    "attention._cost": {"LENGTHS": (16, 32)},
    "attention.gated_linear": {"START": 2.5},
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
    "manifold.lp_dictionary": {"MANY": 400, "FEW": 200, "MOST": 12, "NEAR": 0.2, "PROBLEMS": 3},
    "plane": {"DRAWS": 2},
    "steps": {"EACH": 1, "SPIKED": 1},
    "tasks": {"DRAWS": 2, "TASKS": 6, "STEPS": 2},
    "training": {"DRAWS": 2, "EPS": EPS},
    "weight.alds_decompose": {"NETS": 2},
    "weight.group_orthogonality": {"FILTERS": 64},
    "weight.nf_block": {"DEPTHS": (2, 2)},
}
WHOLE = {"residual.layernorm_scaling"}  # whose loops are over layers, each of which counts
DATA = {"digits", "letters"}  # caches that no constant changes
UNSTEADY = {  # steps of rounding's sign, products of bfloat16, a fit at infinity, rounding itself, a bend of ReLU
    "adamp-lengths": 0.2,
    "normuon-even-rows": 1e-2,
    "normuon-than-muon": 0.5,
    "tail-adaptive-base-heavy-margin": 0.05,
    "tangent-normalization-logarithm": 3.0,
    "plasticity-probe-layernorm": 2e-2,
    "spectral-regularizer-over-none": 2e-2,
    "wasserstein-init-regularizer-over-none": 2e-2,
}
FIRM = {"losses": 1e-3, "gradients": 1e-3, "models": 5e-3}  # of models some lie at a bend of ReLU


def is_run_whole(entry):
    """Whether another test runs all of a draw, whose miniature would take more than one may."""
    runs = entry in IDENTITIES or (entry in PROPERTIES and is_short(entry))
    return runs and shelf.stored(entry).seconds / entry.claim.draws > 0.6


CLAIMS = [entry for entry in (*IDENTITIES, *PROPERTIES, *TRAININGS, *KNOWN) if not is_run_whole(entry)]


class Work(TorchDispatchMode):
    """A clock that every machine reads alike: a second is a number that an operation returned, or a reading."""

    spent = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.spent += sum(leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        return result

    def read(self):
        self.spent += 1
        return self.spent


class Package:
    """The package, of whose functions each call is noted, and of whose classes what objects are made with."""

    def __init__(self, noting, patch):
        self.noting, self.patch, self.classes = noting, patch, set()

    def __getattr__(self, name):
        value = getattr(nk, name)
        if not inspect.isclass(value):
            return self.noting("methods", value) if callable(value) else value
        if value not in self.classes:
            self.classes.add(value)
            self.patch.setattr(value, "__init__", self.noting("settings", value.__init__, placed))
        return value


class Miniature:
    """A short run of an experiment, and what it shows on its way."""

    def __init__(self):
        self.notes, self.loops, self.work = {}, set(), None

    def run(self, measure):
        """What is on record of a measure."""
        with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]):
            self.shorten(patch)
            self.watch(patch)
            forget()
            try:
                number = engine._drawn(measure, 0)
            finally:
                forget()
                if self.work is not None:
                    self.work.__exit__(None, None, None)
        kept = {kind: own[:ENDS] + own[ENDS:][-ENDS:] for kind, own in sorted(self.notes.items())}
        return {"number": rounded(number), **kept, "loops": sorted(self.loops)}

    def shorten(self, patch):
        """Make constants small and loops short; a rate is not searched, and a clock counts work."""
        for name, constants in SMALL.items():
            for constant, value in constants.items():
                patch.setattr(f"{OURS}{name}.{constant}", value)
        for name, module in modules().items():
            if name not in WHOLE:
                patch.setattr(module, "range", self.range, raising=False)
        for method in (nk.EquiangularBasis, nk.SparseETFClassifier):
            patch.setattr(method, "generate", self.generation(method.generate))
        patch.setattr(training, "_rate", lambda scores, rates, run: sum(rates) / len(rates))
        patch.setattr(torch.optim.Adam, "__init__", steadied(torch.optim.Adam.__init__))
        patch.setattr(time, "process_time", self.clock)
        patch.setattr(tracemalloc, "get_traced_memory", lambda: (0, 0))

    def watch(self, patch):
        """Note what experiments ask of torch and of the package."""
        call = self.noting("methods", nn.Module.__call__, lambda y, layer, *x, **own: y if is_method(layer) else None)
        patch.setattr(nn.Module, "__call__", call)
        package = Package(self.noting, patch)
        for module in modules().values():
            if hasattr(module, "nk"):
                patch.setattr(module, "nk", package)
        patch.setattr(torch.Tensor, "backward", self.noting("losses", torch.Tensor.backward, first))
        patch.setattr(torch.Tensor, "argmax", self.noting("scores", torch.Tensor.argmax, first))
        patch.setattr(torch.Tensor, "item", self.noting("items", torch.Tensor.item))
        patch.setattr(torch.autograd, "grad", self.noting("gradients", torch.autograd.grad))
        patch.setattr(torch.func, "vmap", self.mapping(torch.func.vmap))

    def noting(self, kind, function, shown=lambda result, *args, **options: result):
        """A function whose calls from experiments are noted."""

        @functools.wraps(function)
        def noted(*args, **kwargs):
            result = function(*args, **kwargs)
            if sys._getframe(1).f_globals["__name__"].startswith(OURS):
                self.note(kind, shown(result, *args, **kwargs))
            return result

        return noted

    def note(self, kind, result):
        """Keep how large the numbers in a result are, if it has any."""
        with _disable_current_modes():
            sizes = [torch.as_tensor(part).detach().double().norm() for part in tree_leaves(result) if is_number(part)]
            if sizes:
                self.notes.setdefault(kind, []).append(rounded(torch.stack(sizes).norm().tolist()))

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
            self.note("rates", call.arguments["lr"])
            return generate(**{**call.arguments, "steps": STEPS})

        return short

    def clock(self):
        if self.work is None:
            self.work = Work()
            self.work.__enter__()
        return self.work.read()


def steadied(begin):
    """The start of Adam, of none that is built on it, with the larger eps."""
    return lambda self, *args, **own: begin(
        self, *args, **own, **({"eps": EPS} if type(self) is torch.optim.Adam else {})
    )


def first(result, x, *others, **options):
    return x


def placed(result, made, *args, **options):
    """The numbers that an object is made with, each times its place; what is 0 or False counts too."""
    numbers = [part for part in tree_leaves((args, dict(sorted(options.items())))) if isinstance(part, int | float)]
    return [place * (number + 0.5) for place, number in enumerate(numbers, 1)]


def rounded(number):
    return float(f"{number:.6g}")


def is_number(part):
    """Whether a part of a result is a number, or a tensor that no transformation has wrapped."""
    if isinstance(part, torch.Tensor):
        return not torch._C._functorch.is_functorch_wrapped_tensor(part)
    return isinstance(part, int | float)


def is_method(layer):
    """Whether a layer is the package's, and no experiment's own."""
    return type(layer).__module__.startswith("normkit.") and not type(layer).__module__.startswith(OURS)


def modules():
    return {name.removeprefix(OURS): module for name, module in sys.modules.items()
            if name.startswith(OURS) and module is not shelf}  # fmt: skip


def forget():
    """Empty the caches of what was trained."""
    for name, value in [pair for module in modules().values() for pair in vars(module).items()]:
        if isinstance(value, functools._lru_cache_wrapper) and name not in DATA:
            value.cache_clear()


def beginning(entry):
    """The line of a claim."""
    return {"case": named(entry), **{side: Miniature().run(getattr(entry.claim, side)) for side in SIDES}}


def constants(name):
    """The line of a module: its constants that are made small."""
    return {"case": name, **{constant: getattr(modules()[name], constant) for constant in SMALL[name]}}


@functools.cache
def record():
    lines = map(json.loads, RECORD.read_text(encoding="utf-8").splitlines())
    return {line["case"]: line for line in lines}


@functools.cache
def text():
    """The line of the text that language models learn: Python's own documentation, another in each version of it."""
    return {"case": "text", "digest": hashlib.sha256(data.text_of("python-docs").encode()).hexdigest()}


def file_of(entry):
    """That which measures a claim."""
    function = getattr(entry.claim.measure, "func", entry.claim.measure)
    contest = getattr(function, "__self__", None)
    return (contest.scores if contest else function).__module__.rpartition(".")[2].replace("_", "-")


def named_with_file(entry):
    """The claim's name with that of the file which measures it, by which `tools/mutate.py` finds the case."""
    file = file_of(entry)
    return named(entry) if file == entry.method else f"{named(entry)}-{file}"


@pytest.mark.parametrize("entry", CLAIMS, ids=named_with_file)
def test_a_claim_in_miniature_gives_the_numbers_on_record(entry):
    if file_of(entry) == "language" and text() != record()["text"]:
        pytest.skip("its record is of the text of another version of Python")
    now, then, within = beginning(entry), record()[named(entry)], UNSTEADY.get(named(entry), 1e-3)
    for side in SIDES:
        assert now[side].keys() == then[side].keys()
        assert now[side].pop("loops") == then[side]["loops"]
        for kind, numbers in now[side].items():
            rel = FIRM.get(kind, within)
            assert numbers == pytest.approx(then[side][kind], rel=rel, abs=5e-5, nan_ok=True), (side, kind)


@pytest.mark.parametrize("name", SMALL)
def test_a_constant_that_is_small_in_miniature_is_the_one_of_the_stored_verdicts(name):
    assert json.loads(json.dumps(constants(name))) == record()[name]


if __name__ == "__main__":
    torch.set_num_threads(1)
    lines = [text(), *map(constants, SMALL), *map(beginning, CLAIMS)]
    RECORD.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
