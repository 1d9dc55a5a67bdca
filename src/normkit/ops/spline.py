"""Rational-quadratic splines, number by number, from what a network returns: the curve or its inverse, and the slope.

The kernel works in double, whatever the type, from the softmax of the bins to the logarithm of the slope; its backward
pass finds all of it anew and keeps nothing but what it was given.

>>> import torch
>>> knots = Knots(4, (0.0, 1.0, 0.0, 1.0))
>>> flat = torch.zeros(1, 4), torch.zeros(1, 4), torch.full((1, 5), 0.5397)
>>> y, log_slope = spline(knots, torch.tensor([0.3]), *flat)
>>> torch.allclose(y, torch.tensor(0.3), atol=1e-4)
True
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit.kernels import special
from normkit.ops import eager

__all__ = ["Knots", "spline"]


class Knots(NamedTuple):
    """How knots are made: of so many bins, in a box of left, right, bottom and top.

    tails: the identity outside of the box, and slopes of 1 at its ends, which are not among those given.
    least: the least share of a width, of a height, and the least slope.
    """

    bins: int
    box: tuple[float, float, float, float]
    tails: bool = False
    least: tuple[float, float, float] = (1e-3, 1e-3, 1e-3)


class _Bin(NamedTuple):
    """What the curve is in the bin of each number: its corner, sizes and the slopes at both ends."""

    x: Tensor
    y: Tensor
    width: Tensor
    height: Tensor
    slope: Tensor
    next_slope: Tensor


def spline(
    knots: Knots, x: Tensor, widths: Tensor, heights: Tensor, slopes: Tensor, *, inverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the curve at ``x`` and the logarithm of its slope there; numbers outside of the box pass unchanged.

    inverse: where the curve is ``x``, and the logarithm of the inverse's slope.
    """
    raw = (widths, heights, slopes)
    if eager.runs_formula("spline", _against(knots, x, raw), x, *raw):
        return _formula(x, *raw, knots, inverse)
    return _Spline.apply(x, *raw, knots, inverse)


class _Spline(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, widths: Tensor, heights: Tensor, slopes: Tensor, knots: Knots, inverse: bool):
        ctx.knots, ctx.inverse = knots, inverse
        ctx.save_for_backward(x, widths, heights, slopes)
        given = [eager.pack(t) for t in (x, widths, heights, slopes)]
        y, log_slope = (x.new_empty(x.shape) for _ in range(2))
        special.require().spline(_plan(x, knots, inverse), x.numel(), *given, y, log_slope)
        return y, log_slope

    @staticmethod
    def backward(ctx, *sent: Tensor):
        tensors, needs = ctx.saved_tensors, ctx.needs_input_grad[:4]
        why = eager.derived_again() or eager.refusal(sent[1])  # of a batch of gradients one may be none
        if eager.runs_formula("spline", why, *sent, *tensors):
            grads = eager.differentiate(_formula, tensors, (ctx.knots, ctx.inverse), sent, needs)
        else:
            given = [eager.pack(t) for t in (*tensors, *sent)]
            asked = zip(tensors, needs, strict=True)
            grads = tuple(t.new_empty(t.shape) if want else None for t, want in asked)
            plan = _plan(tensors[0], ctx.knots, ctx.inverse)
            special.require().spline_backward(plan, tensors[0].numel(), *given, *grads)
        return *grads, None, None


def _against(knots: Knots, x: Tensor, raw: tuple[Tensor, ...]) -> str | None:
    """What is against the kernel of splines, beside what is against all."""
    if torch.compiler.is_compiling():
        return None
    if eager.on_gpu(x):
        return "there is no kernel of splines on GPUs"
    if x.dtype not in (torch.float32, torch.float64) or any(t.dtype != x.dtype for t in raw):
        return f"the kernel of splines takes float32 or float64 throughout, not {x.dtype}"
    if knots.bins > special.MOST_BINS:
        return f"the kernel of splines takes up to {special.MOST_BINS} bins"
    return special.absent()


def _plan(x: Tensor, knots: Knots, inverse: bool) -> bytes:
    return special.SPLINE.pack(eager.code(x), knots.bins, knots.tails, inverse, *knots.box, *knots.least)


def _formula(x: Tensor, widths: Tensor, heights: Tensor, slopes: Tensor, knots: Knots, inverse: bool):
    low, high = knots.box[2:] if inverse else knots.box[:2]
    inside = (x >= low) & (x <= high)
    curve = _down if inverse else _up
    value, log_slope = curve(x.clamp(low, high), _find(knots, x.clamp(low, high), inverse, widths, heights, slopes))
    return torch.where(inside, value, x), torch.where(inside, log_slope, 0)


def _places(knots: Knots, raw: Tensor) -> Tensor:
    """Where the knots (2, ..., K + 1) are along x and y, by what makes their bins."""
    count, box = knots.bins, knots.box
    shares = F.pad(torch.softmax(raw, -1).cumsum(-1)[..., :-1], (1, 1))
    shape = (2, *[1] * (raw.dim() - 2), -1)
    sides = [(box[at], box[at + 1] - box[at], knots.least[at // 2]) for at in (0, 2)]
    steps = [[low + size * least * k for k in range(count)] + [low + size] for low, size, least in sides]
    sizes = [[size * (1 - least * count)] for _, size, least in sides]
    offsets, scales = (raw.new_tensor(values).reshape(shape) for values in (steps, sizes))
    return torch.addcmul(offsets, shares, scales)


def _find(knots: Knots, place: Tensor, by_height: bool, widths: Tensor, heights: Tensor, slopes: Tensor) -> _Bin:
    """The bin of each number, found by its knots along x or along y."""
    positions = _places(knots, torch.stack([widths, heights]))
    below = (positions[int(by_height), ..., 1:-1] <= place.unsqueeze(-1)).sum(-1, keepdim=True)
    ends = torch.cat([below, below + 1], -1)
    near = positions.gather(-1, ends.expand(2, *ends.shape))
    corners, sizes = near[..., 0], near[..., 1] - near[..., 0]
    least = knots.least[2]
    held = math.log(math.expm1(1 - least)) if least < 1 else -math.inf
    raw = F.pad(slopes, (1, 1), value=held) if knots.tails else slopes
    return _Bin(*corners.unbind(0), *sizes.unbind(0), *(least + F.softplus(raw.gather(-1, ends))).unbind(-1))


def _up(x: Tensor, k: _Bin) -> tuple[Tensor, Tensor]:
    s, t = k.height / k.width, (x - k.x) / k.width
    across = t * (1 - t)
    below = s + (k.slope + k.next_slope - 2 * s) * across
    return k.y + k.height * (s * t.square() + k.slope * across) / below, _log_slope(k, s, t, below)


def _down(z: Tensor, k: _Bin) -> tuple[Tensor, Tensor]:
    s, r = k.height / k.width, z - k.y
    bend = r * (k.slope + k.next_slope - 2 * s)
    a, b, c = bend + k.height * (s - k.slope), k.height * k.slope - bend, -s * r
    root = (b.square() - 4 * a * c).clamp(min=0).sqrt()
    t = 2 * c / (-b - root)
    below = s + (k.slope + k.next_slope - 2 * s) * t * (1 - t)
    return t * k.width + k.x, -_log_slope(k, s, t, below)


def _log_slope(k: _Bin, s: Tensor, t: Tensor, below: Tensor) -> Tensor:
    above = s.square() * (k.next_slope * t.square() + 2 * s * t * (1 - t) + k.slope * (1 - t).square())
    return above.log() - 2 * below.log()
