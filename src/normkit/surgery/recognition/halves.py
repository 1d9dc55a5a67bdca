"""How a user's module rounds in half precision, and whether it is there what it is elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from normkit.surgery.recognition.inputs import Shape
from normkit.surgery.recognition.pair import UNIT, Differs, Pair, draw_inputs

HALVES = (torch.bfloat16, torch.float16)
HALF_STEPS = 32, 4.0, 0.5  # where every step is rounded to half precision: at most, in the mean, and all one way
OTHER_BITS = 0.02  # the share of results in half precision that may differ by how a sum is ordered
OVERFLOWING = 3e4  # how large parameters are whose results no float16 holds, and bfloat16 does
AGAIN = range(1, 9)


class Half(NamedTuple):
    """How close an explanation comes in half precision, and how far the user's module is from the true numbers.

    other: the share of results with other bits; units: units of rounding off the truth, at most; mean: in the mean;
    drift: all in one direction.
    """

    dtype: torch.dtype
    other: float
    units: float
    mean: float
    drift: float

    @property
    def rounded(self) -> bool:
        """Whether rounding at every step explains it."""
        return self.units <= HALF_STEPS[0] and self.mean <= HALF_STEPS[1] and abs(self.drift) <= HALF_STEPS[2]


def half(
    module: nn.Module, explained: nn.Module, carried: Mapping[str, str], shape: Shape, further: int, dtype
) -> Half | None:
    """Compare in a half precision, parameters too; None where the user's module does not take it.

    Where results are off all one way, which of few channels and rows may be chance, it is asked again with others.
    """
    comparison = _half(module, explained, carried, shape, further, dtype, 0)
    if comparison is None or abs(comparison.drift) <= HALF_STEPS[2]:
        return comparison
    others = [_half(module, explained, carried, shape, further, dtype, again) for again in AGAIN]
    drifts = [comparison.drift, *(other.drift for other in others if other is not None)]
    return comparison._replace(drift=sum(drifts) / len(drifts))


def in_half(
    module: nn.Module, explained: nn.Module, carried: Mapping[str, str], shape: Shape, further: int, half: Half
) -> None:
    """Raise where a module that is explained at usual numbers is something else at small, large or too large ones.

    One that rounds at every step overflows where the explanation does not, and is not asked for the largest.
    """
    dtype, most = half.dtype, torch.finfo(half.dtype).max
    native = half.other > OTHER_BITS
    kinds = {"of half's sizes": 1.0} if native else {"of half's sizes": 1.0, "of half's largest": 1.0}
    kinds["normal"] = OVERFLOWING
    for numbers, spread in kinds.items():
        pair = Pair(module, explained, carried, dtype, seed=5, spread=spread)
        pair.train(False)
        x, *others = draw_inputs(shape, "normal", further, dtype)
        inputs = [_scale_rows(x, numbers), *others]
        theirs, ours = pair.theirs(*inputs), pair.measure_idle(inputs)
        if theirs.dtype != ours.dtype:
            raise Differs(f"in {str(dtype)[6:]} it returns {str(theirs.dtype)[6:]}")
        theirs, ours = theirs.double(), ours.double()
        row = ours.abs().nan_to_num(0, 0, 0).amax(shape.axes, keepdim=True) + pair.idle
        close = (theirs - ours).abs() <= max(HALF_STEPS[0], 2 * half.units) * UNIT[dtype] * row
        close |= theirs.isnan() & ours.isnan()  # a product that both round to infinity
        held = theirs.isfinite() & (_true(pair, inputs).abs() > 1.5 * most)
        lost = torch.full_like(held, native and spread > 1 and dtype is torch.float16)
        if (held | ~(close | lost | (ours.abs() > 0.9 * most))).any():
            raise Differs(f"in {str(dtype)[6:]} it is something else, {numbers}")


def _half(
    module: nn.Module, explained: nn.Module, carried: Mapping[str, str], shape: Shape, further: int, dtype, again: int
) -> Half | None:
    pair = Pair(module, explained, carried, dtype, seed=5 + again)
    pair.train(False)
    inputs = draw_inputs(shape, "normal", further, dtype, again)
    try:
        theirs = pair.theirs(*inputs)
    except Exception:
        return None
    ours = pair.measure_idle(inputs)
    true = Pair(module, explained, carried, torch.float64, seed=5 + again)
    _copy(pair, true)
    true.train(False)
    want = true.ours(*[t.double() for t in inputs])
    unit, got = UNIT[dtype], theirs.double()
    off = (got - want).abs() / (unit * (want.abs().clamp(min=float(want.abs().mean()) / 4) + pair.idle))
    drift = float((got * want).sum() / want.square().sum() - 1) / unit
    other = float((theirs.to(ours.dtype) != ours).double().mean())
    far = float(off.max()) if off.isfinite().all() else float("inf")
    return Half(dtype, other, far, float(off.square().mean().sqrt()), drift)


def _true(pair: Pair, inputs: Sequence[Tensor]) -> Tensor:
    """The result of the explanation in float64."""
    return copy.deepcopy(pair.ours.module).double()(*[t.double() for t in inputs])


def _scale_rows(x: Tensor, numbers: str) -> Tensor:
    """Rows of sizes that half precision can square, or as large as it goes."""
    if numbers == "normal":
        return x
    if numbers == "of half's largest":
        return x / x.abs().max() * 3e4
    g = torch.Generator().manual_seed(8)
    rows = 10.0 ** (4 * torch.rand(len(x), *[1] * (x.ndim - 1), generator=g) - 2.5)
    return (x * rows).to(x.dtype)


@torch.no_grad()
def _copy(source: Pair, target: Pair) -> None:
    """Give the exact pair the numbers that the half one has, rounded as they are."""
    for ours in source.carried:
        target.ours.tensors[ours].copy_(source.ours.tensors[ours])
