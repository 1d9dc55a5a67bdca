"""What the layers of Poincaré ResNet share: vectors in, into the ball, and vectors out."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit.manifold._ball import TINY, exp0, log0, norm, project
from normkit.statistics import accurate, full_precision

FURTHER = "float32 keeps points further from the border of the ball than float64, so that far vectors differ"
BORDER = dict.fromkeys(("half", "device float32", "offsets results", "offsets 1e2 gradients"), FURTHER)


def start(into: int, out: int, bias: bool, identity: bool) -> tuple[nn.Parameter, nn.Parameter | None]:
    """The weight (into, out) and the bias of a layer that begins."""
    weight = 0.5 * torch.eye(into, out) if identity else torch.randn(into, out) / math.sqrt(2 * into * out)
    return nn.Parameter(weight), nn.Parameter(torch.zeros(out)) if bias else None


def linear(v: Tensor, weight: Tensor, bias: Tensor | None, c: float) -> Tensor:
    """Take tangent vectors (..., in) through the ball to tangent vectors (..., out)."""
    s, x, z = math.sqrt(c), project(exp0(v, c), c), accurate(weight)
    x = x.to(z.dtype)
    length = norm(z.mT).squeeze(-1).clamp(min=TINY)
    factor = 2 * (1 - c * x.square().sum(-1, keepdim=True))
    with full_precision(v):
        inner = s * factor / length * (x @ z)
    if bias is not None:
        shift = 2 * s * accurate(bias)
        inner = inner * shift.cosh() - (factor - 1) * shift.sinh()
    u = (2 * length * inner.asinh()).sinh() / s  # s d_k is the argument
    y = u / (1 + (1 + c * u.square().sum(-1, keepdim=True)).sqrt())
    return log0(project(y, c), c)
