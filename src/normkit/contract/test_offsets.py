"""Contract, offsets: far from zero, float32 loses what rounding the numbers loses, and no more.

The scale is the method's own condition: by how much the results of float64 move when every input and parameter moves by
one rounding of float32. An algorithm that is stable stays within a few such moves, whatever the offset; one that takes
a variance as a difference of large numbers does not.
"""

import functools

import pytest
import torch

import normkit as nk
from normkit.contract import subject
from normkit.contract.subject import build, draw
from normkit.contract.values import over
from normkit.kinds.kind import layouts
from normkit.kinds.module import ModuleKind

EPSILON = torch.finfo(torch.float32).eps
ROUNDINGS = 32  # one after another, on the way from the inputs to a result
NUDGES = 4  # draws of signs, of which the one that moves a result most counts
TINY = torch.finfo(torch.float32).tiny / EPSILON
SIZES = {"few": (24, 15, ()), "image": (8, 4, (3, 2))}


def anywhere(name):
    """Whether the first input may be any numbers, and not such as lie in an interval."""
    return [layout.kind for layout in layouts(nk.card(name)) if layout.floating][:1] == [""]


METHODS = [name for name in subject.methods(lambda kind: isinstance(kind, ModuleKind)) if anywhere(name)]


def inputs(name, offset, size):
    """Inputs with an offset on the first: images channels-last, or two axes where the method takes two."""
    features, batch, trailing = SIZES[size]
    trailing = trailing if "*" in nk.card(name).shape.axes else subject.SMALL["trailing"]
    drawn = draw(name, features, batch, dtype=torch.float32, trailing=trailing)
    first = subject.first_floating(drawn)
    drawn[first] = drawn[first] + offset
    last = torch.channels_last if drawn[first].dim() == 4 else torch.preserve_format
    drawn[first] = drawn[first].contiguous(memory_format=last) if last is torch.channels_last else drawn[first]
    return build(name, features, dtype=torch.float32), drawn


def numbers(module, given):
    """Results, running state and gradients, each by name."""
    results, gradients, learned = subject.run(module, given)
    gradients = {f"input {i}": value for i, value in enumerate(gradients)} | learned
    state = {name: value for name, value in subject.state(module).items() if value.is_floating_point()}
    return {
        "results": {f"result {i}": value for i, value in enumerate(results)},
        "state": state,
        "gradients": {name: value for name, value in gradients.items() if value is not None},
    }


def wide(values):
    return [v.double() if v.is_floating_point() else v for v in values]


def nudged(values, generator):
    """Every number one rounding away, up or down."""
    signs = [torch.randint(0, 2, v.shape, generator=generator).mul(2).sub(1) for v in values]
    return [v * (1 + EPSILON * s) if v.is_floating_point() else v for v, s in zip(values, signs, strict=True)]


@functools.lru_cache(maxsize=2)  # the tests of results and of gradients come one after the other
def compared(name, offset, size):
    """What float32 gives, float64, and float64 of nudged numbers."""
    module, given = inputs(name, offset, size)
    exact, generator = subject.fresh(module).double(), torch.Generator().manual_seed(0)
    runs = [numbers(module, given), numbers(subject.fresh(exact), wide(given))]
    for _ in range(NUDGES):
        other = subject.fresh(exact)
        values = nudged([p.detach() for p in other.parameters()], generator)
        with torch.no_grad():
            for parameter, value in zip(other.parameters(), values, strict=True):
                parameter.copy_(value)
        runs.append(numbers(other, nudged(wide(given), generator)))
    return runs


def off(runs, what, share, least):
    """The names of what is further from float64 than its rounding explains, with both; NaN is to be NaN."""
    got, want, *others = ({n: v for n, v in run[what].items() if v.numel()} for run in runs)
    floor = share * max([least, *(most(value) for value in want.values())])
    problems = []
    for name, value in want.items():
        error = most(got[name].double() - value)
        moved = max(most(other[name] - value) for other in others)
        if error > ROUNDINGS * (moved + floor) or not torch.equal(got[name].isnan(), value.isnan()):
            problems.append(f"{name} is off by {error:.1e}; rounding the numbers moves it by {moved:.1e}")
    return problems


def most(value):
    return float(value.abs().nan_to_num(nan=0.0).max())


@pytest.mark.line("offsets")
@pytest.mark.parametrize("name", METHODS)
@over(offset=["1e2", "1e4", "1e6"], size=SIZES, what=["results", "state", "gradients"])
def test_far_from_zero_float32_is_as_good_as_its_numbers(name, offset, size, what):
    # a gradient sums products of values as large as the offset with gradients of size 1, which may cancel
    share, least = (EPSILON * float(offset), 1.0) if what == "gradients" else (EPSILON, TINY)
    assert off(compared(name, float(offset), size), what, share, least) == []
