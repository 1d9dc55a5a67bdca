"""Whether two modules compute the same: numbers, gradients and state, to what rounding allows and no more."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from normkit.surgery.recognition.calls import Going
from normkit.surgery.recognition.inputs import NUMBERS, Shape
from normkit.surgery.recognition.lower import Lower
from normkit.surgery.recognition.pair import (
    CANCELLED,
    STEPS,
    UNIT,
    Differs,
    Pair,
    cancels,
    difference,
    draw_inputs,
    final,
    fitting,
    gradients,
    name_case,
    signs,
    terms,
)
from normkit.surgery.recognition.specimen import SPREAD, Specimen
from normkit.surgery.recognition.ways import Ways

GRADIENTS_AT = (
    "normal",
    "of many sizes",
    "at an offset of 1e3",
    "with zeros",
    "of size 1e6",
    "of size 1e-7",
    "negative",
)
HUGE = ("of size 1e12", "of size 1e16")
PERTURBED = 3


@dataclass
class Verdict:
    """What was tried, and the largest difference in each type, relative to the largest number of its row."""

    error: dict[str, float] = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)


def verify(
    module: nn.Module,
    explained: nn.Module,
    carried: Mapping[str, str],
    shapes: Sequence[Shape],
    further: int,
    unit: float,
    spread: float | None = SPREAD,
) -> Verdict:
    """Return what was tried, or raise :class:`Differs` with the first difference.

    spread: how large parameters are tried too, below SPREAD not together with huge inputs, whose product some square
    in float32; None: none, since an activation's slopes are mere rounding there.
    """
    verdict = Verdict()
    exact = torch.float64 if _takes(module, torch.float64, shapes, further) else torch.float32
    unit = max(unit, UNIT[exact] / 2)
    largest = _alike(Pair(module, explained, carried, exact, seed=1), shapes, further, unit)
    with final():
        if spread is not None:
            large = Pair(module, explained, carried, exact, spread=spread, seed=2)
            held = [numbers for numbers in NUMBERS if spread == SPREAD or numbers not in HUGE]
            largest = max(largest, _alike(large, shapes, further, unit, held))
        went = Going(module, explained, carried, shapes, further, unit, exact).check()
        went += Ways(module, explained, carried, shapes, further, unit, exact).check()
        went += Lower(module, explained, carried, shapes, further, unit, exact).check()
        if exact is torch.float64:
            verdict.error["float32"] = _in_float32(module, explained, carried, shapes, further)
    verdict.error[str(exact)[6:]] = largest
    verdict.evidence.append(
        f"equal in {str(exact)[6:]} on {len(NUMBERS)} kinds of numbers, {len(shapes)} shapes, in training and "
        f"evaluation, with gradients, to {largest:.1e}"
    )
    verdict.evidence += went
    return verdict


def _alike(
    pair: Pair, shapes: Sequence[Shape], further: int, unit: float, kinds: Collection[str] = NUMBERS.keys()
) -> float:
    """Compare numbers and gradients on all shapes; return the largest difference."""
    largest, exact = 0.0, pair.type
    for mode in (False, True):
        pair.train(mode)
        for shape in fitting(shapes, mode, pair, further):
            pair.restore()
            pair.measure_idle(draw_inputs(shape, "normal", further, exact))
            for numbers in kinds:
                inputs = draw_inputs(shape, numbers, further, exact)
                where = f"{numbers}, {name_case(shape, mode)}"
                deviation = _compare(pair, inputs, shape, _unit_of(unit, numbers), where)
                largest = max(largest, 0.0 if numbers in CANCELLED else deviation)
            for numbers in GRADIENTS_AT:
                inputs = draw_inputs(shape, numbers, further, exact)
                where = f"{numbers}, {name_case(shape, mode)}"
                _compare_gradients(pair, inputs, shape, _unit_of(unit, numbers), where)
    return largest


def _unit_of(unit: float, numbers: str) -> float:
    """The unit that results may be off by, which in float64 leaves room for variances from sums of squares."""
    return unit * CANCELLED.get(numbers, 1) if unit < 1e-11 else unit


def _takes(module: nn.Module, dtype: torch.dtype, shapes: Sequence[Shape], further: int) -> bool:
    try:
        Specimen(module, dtype)(*draw_inputs(shapes[0], "normal", further, dtype))
    except Exception:
        return False
    return True


def perturb(inputs: Sequence[Tensor], unit: float, seed: int) -> list[Tensor]:
    """Move each number of the first input by two units of its size, up or down."""
    x, *others = inputs
    return [x * (1 + 2 * unit * signs(x.shape, x.dtype, seed)), *others]


@lru_cache(maxsize=16)
def _draw_gradient(sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """What comes down to a result in a backward pass."""
    return torch.randn(sizes, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(dtype)


def _gradients(side: Specimen, inputs: Sequence[Tensor], names: Iterable[str]) -> list[Any]:
    return gradients(side, inputs, names, lambda y: _draw_gradient(y.shape, y.dtype).clone())  # it may be written into


def _compare(pair: Pair, inputs: Sequence[Tensor], shape: Shape, unit: float, where: str) -> float:
    """Compare one call's results and running estimates; return the largest difference."""
    with torch.no_grad():
        pair.restore()
        ours, theirs = pair.ours(*inputs), pair.theirs(*[t.clone() for t in inputs])  # which it may write into
        estimates = [(name, their.clone(), our.clone()) for name, their, our in pair.buffers()]
        moves = cache(lambda: _moves(pair, inputs, unit, [ours, *(our for _, _, our in estimates)]))
        deviation = difference(theirs, ours, shape.axes, unit, where, lambda: moves()[0].clamp(min=unit * pair.idle))
        for at, (name, their, our) in enumerate(estimates, 1):
            if our.isnan().any() and pair.still:  # a share of 0 of what is no number
                continue
            every, slack = tuple(range(our.ndim)), lambda at=at: moves()[at]
            difference(their.reshape(our.shape), our, every, unit, f"{name}, {where}", slack)
    return deviation


def _moves(pair: Pair, inputs: Sequence[Tensor], unit: float, ours: Sequence[Tensor]) -> list[Tensor]:
    """How far the explanation's result and running estimates move where its input is rounded otherwise."""
    moves = [torch.zeros_like(t) for t in ours]
    for seed in range(PERTURBED):
        pair.restore()
        moved = [pair.ours(*perturb(inputs, unit, seed)), *(our for _, _, our in pair.buffers())]
        moves = [torch.maximum(m, (b - o).abs()) for m, b, o in zip(moves, moved, ours, strict=True)]
    return moves


def _compare_gradients(pair: Pair, inputs: Sequence[Tensor], shape: Shape, unit: float, where: str) -> None:
    learned = pair.learned_names
    pair.restore()
    theirs = _gradients(pair.theirs, inputs, learned.values())
    pair.restore()
    ours = _gradients(pair.ours, inputs, learned)
    moved = cache(lambda: _moved_gradients(pair, inputs, unit, learned))
    names = ["the result", "the gradient of the input", *(f"the gradient of {name}" for name in learned.values())]
    for at, (name, their, our) in enumerate(zip(names, theirs, ours, strict=True)):
        has_rows = at < 2
        if their is None or our is None:
            cancels_out = not has_rows and _cancels(their, ours[0], unit)
            if not cancels_out and not _are_none(their, our):
                raise Differs(f"{name} is {'none' if their is None else 'not none'}, {where}")
            continue
        every = shape.axes if has_rows else tuple(range(our.ndim))

        def slack(at: int = at, our: Tensor = our) -> Tensor:
            farthest = torch.stack([(m[at] - our).abs() for m in moved() if m[at] is not None]).amax(0)
            if at == 1:
                sent = _draw_gradient(ours[0].shape, ours[0].dtype)
                return farthest + STEPS * unit * terms(pair.ours.module, inputs[0], sent, shape)
            return farthest if at else farthest + unit * pair.idle

        # a sum over rows can cancel; each of its terms may be off by what its own size allows
        difference(their.reshape(our.shape), our, every, 8 * unit, f"{name}, {where}", slack)


@torch.no_grad()
def _moved(side: Specimen, unit: float, seed: int) -> Specimen:
    """A copy whose parameters are rounded otherwise."""
    moved = Specimen.of(copy.deepcopy(side.module))
    for parameter in moved.module.parameters():
        parameter.copy_(perturb([parameter], unit, seed)[0])
    return moved


def _moved_gradients(pair: Pair, inputs: Sequence[Tensor], unit: float, learned: Iterable[str]) -> list[list[Any]]:
    """What the explanation gives where its input and its parameters are rounded otherwise."""
    outputs = []
    for seed in range(PERTURBED):
        pair.restore()
        outputs.append(_gradients(_moved(pair.ours, unit, seed), perturb(inputs, unit, seed), learned))
    return outputs


def _are_none(*gradients: Tensor | None) -> bool:
    return all(gradient is None or not gradient.any() for gradient in gradients)


def _cancels(slope: Tensor | None, y: Tensor, unit: float) -> bool:
    return slope is not None and cancels(slope, _draw_gradient(y.shape, y.dtype), unit)


def _in_float32(module, explained, carried, shapes, further) -> float:
    """The largest difference in float32, forward, with the module's own numbers."""
    pair = Pair(module, explained, carried, torch.float32, drawn=False)
    pair.train(False)
    unit = UNIT[torch.float32]
    differences = [
        _compare(pair, draw_inputs(shape, numbers, further, torch.float32), shape, unit, f"float32, {numbers}")
        for shape in fitting(shapes, False, pair, further)
        for numbers in ("normal", "of many sizes", "with zeros")
    ]
    return max(differences)
