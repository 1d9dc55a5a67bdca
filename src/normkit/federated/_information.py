"""What the fairness functions share: conditional information of a table, its derivatives, and Newton's method."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.federated._states import finite

PAPER = (
    "Demystifying Local and Global Fairness Trade-offs in Federated Learning Using Partial Information Decomposition "
    "(Hamman and Dutta, 2024), arXiv 2307.11333"
)
BITS = 1 / math.log(2)
STEPS = 60  # of Newton's method for one barrier
SMALL = 1e-13  # a squared decrement at which it stands still


class Taylor(NamedTuple):
    """A value, its gradient and its Hessian."""

    value: Tensor
    gradient: Tensor
    hessian: Tensor


def table(owner: str, joint: Tensor) -> Tensor:
    """Return counts or probabilities (S, Z, Y) as probabilities in float64."""
    check.values(owner, "joint", joint, (None, None, None), joint)
    finite(owner, "joint", joint)
    if (joint < 0).any() or not joint.sum() > 0:
        raise ValueError(f"{owner}: joint must not be below 0, nor 0 everywhere")
    return joint.double() / joint.double().sum()


def information(p: Tensor) -> Tensor:
    """I(Z; Y | S) in bits of probabilities (S, Z, Y)."""
    return BITS * (_xlogx(p) - _xlogx(p.sum(1)) - _xlogx(p.sum(2)) + _xlogx(p.sum((1, 2)))).clamp(min=0)


def _xlogx(p: Tensor) -> Tensor:
    return torch.xlogy(p, p).sum()


def expanded(p: Tensor) -> Taylor:
    """I(Z; Y | S) in bits with its derivatives by the cells above 0, where no marginal of (S, Z) moves."""
    inside = p > 0
    sums = torch.where(inside, p.sum(1, keepdim=True), 1)
    cells = torch.where(inside, p, 1)
    s, z, y = p.shape
    same = torch.eye(s * y, dtype=p.dtype, device=p.device).view(s, 1, y, s, 1, y).expand(s, z, y, s, z, y)
    same = same.reshape(s * z * y, -1) * inside.flatten()
    hessian = torch.diag(1 / cells.flatten()) - same / sums.flatten().unsqueeze(1)
    hessian = hessian * inside.flatten().unsqueeze(1)
    return Taylor(information(p), BITS * (cells.log() - sums.log()).flatten(), BITS * hessian)


def newton(function: Callable[[Tensor], Taylor | None], start: Tensor) -> Tensor:
    """Minimize a convex function from a point inside its domain; None is what it returns outside."""
    x, now = start, function(start)
    for _ in range(STEPS):
        if now is None or not x.numel():
            break
        # walls bend by 1 / cell^2: scaled to ones on its diagonal, the Hessian keeps its small directions beside those
        bent = now.hessian.diagonal()
        scale = torch.where(bent > 0, bent, 1).rsqrt()
        # the pseudo-inverse leaves alone what nothing depends on
        inverse = torch.linalg.pinv(scale * now.hessian * scale.unsqueeze(1), hermitian=True)
        step = -scale * (inverse @ (scale * now.gradient))
        slope = float(now.gradient @ step)
        if not slope < -SMALL:
            break
        candidate = _shorten(function, x, now, step, slope)
        if candidate is None:
            break
        x, now = candidate
    return x


def _shorten(function, x: Tensor, now: Taylor, step: Tensor, slope: float) -> tuple[Tensor, Taylor] | None:
    """Halve a step until it lowers the function."""
    length = 1.0
    while length > 1e-12:
        after = function(x + length * step)
        if after is not None and float(after.value) <= float(now.value) + 0.25 * length * slope:
            return x + length * step, after
        length /= 2
    return None
