"""Conditional flow matching: a point on the way from noise to data, and the velocity to be learned there."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import reals

NAME = "conditional-flow-matching"
PATHS = ("linear", "target", "schrodinger", "trigonometric")


class Velocity(NamedTuple):
    """Points on their ways, and the velocities there."""

    xt: Tensor
    ut: Tensor


@method(
    NAME,
    paper="Improving and Generalizing Flow-Based Generative Models with Minibatch Optimal Transport (Tong et al., "
    "2023), arXiv 2302.00482",
    shape="N C",
    inputs={"x1": "N C", "t": "N : unit", "noise": "N C"},
)
def conditional_flow_matching(
    x0: Tensor,
    x1: Tensor,
    t: Tensor | None = None,
    noise: Tensor | None = None,
    *,
    path: str = "linear",
    sigma: float = 0.0,
) -> Velocity:
    """Return a point at a time between each pair, and the velocity that a network is to have there.

    For training a continuous flow from any source to data without solving it. For a target that is known by an energy
    alone take ``path-gradient-loss`` or ``subtb-loss``. Where few solver steps must do, ``ot-cfm`` pairs the points
    first.

    The loss is the mean of (v(xt, t) - ut)^2. xt = m + s noise with

        linear         m = t x1 + (1 - t) x0,  s = sigma:  ut = x1 - x0
        target         m = t x1,  s = 1 - (1 - sigma) t:  ut = (x1 - (1 - sigma) xt) / s
        schrodinger    m as linear,  s = sigma sqrt(t (1 - t)):  ut = (1 - 2t) / (2t (1 - t) + 1e-8) (xt - m) + x1 - x0
        trigonometric  m = cos(pi t / 2) x0 + sin(pi t / 2) x1,  s = sigma:  ut = dm / dt

    Args:
        x0, x1: source and data, (N, ...). "target" does not look at x0: its noise is the source.
        t: times of [0, 1], (N,); None: drawn. The gradient of "schrodinger" to it is infinite at both ends.
        noise: normal numbers, (N, ...); None: drawn.
        path: one of the above.
        sigma: the width of the path; "schrodinger" needs one, and pairs of an entropic plan with 2 sigma^2.

    Returns ``xt`` and ``ut``, (N, ...).

    Improving and Generalizing Flow-Based Generative Models (Tong et al., 2023), arXiv 2302.00482.
    """
    check.choice(NAME, "path", path, PATHS)
    check.number(NAME, "sigma", sigma, 0.0)
    if path == "schrodinger" and sigma == 0:
        raise ValueError(f"{NAME}: sigma must be above 0 with path='schrodinger'")
    check.floating(NAME, x0, "x0")
    if x0.dim() == 0:
        raise ValueError(f"{NAME}: x0 must have an axis of samples, but it is a single number")
    a, b = reals(NAME, "x0", x0, x0.shape), reals(NAME, "x1", x1, x0.shape, x0)
    at = torch.rand(len(a), dtype=a.dtype, device=a.device) if t is None else reals(NAME, "t", t, (len(a),), x0)
    draw = torch.randn_like(a) if noise is None else reals(NAME, "noise", noise, x0.shape, x0)
    xt, ut = _along(path, sigma, a, b, at.reshape(-1, *[1] * (a.dim() - 1)), draw)
    return Velocity(xt.to(x0.dtype), ut.to(x0.dtype))


def _along(path: str, sigma: float, a: Tensor, b: Tensor, t: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    if path == "target":
        width = 1 - (1 - sigma) * t
        xt = t * b + width * noise
        return xt, (b - (1 - sigma) * xt) / width
    if path == "trigonometric":
        cos, sin = torch.cos(math.pi / 2 * t), torch.sin(math.pi / 2 * t)
        return cos * a + sin * b + sigma * noise, math.pi / 2 * (cos * b - sin * a)
    middle = t * b + (1 - t) * a
    if path == "linear":
        return middle + sigma * noise, b - a
    off = sigma * (t * (1 - t)).sqrt() * noise
    return middle + off, (1 - 2 * t) / (2 * t * (1 - t) + 1e-8) * off + b - a
