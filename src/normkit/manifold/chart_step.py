"""One step of descent on a manifold that several charts cover."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import beside
from normkit.statistics import accurate, full_precision, reals

RETRACTIONS = ("project", "chart", "euclidean")
LEAST = 1e-6  # charts of less weight are left out


@method(
    "chart-step",
    paper="Manifold Learning by Mixture Models of VAEs for Inverse Problems (Alberti et al., 2024), arXiv 2303.15244",
    shape="C",
    over="",
    inputs={"matrix": "K C 2", "shift": "K C", "weights": "K : simplex", "target": "C"},
    example={"step_size": 0.1},
)
def chart_step(
    point: Tensor,
    matrix: Tensor,
    shift: Tensor,
    weights: Tensor,
    target: Tensor,
    *,
    step_size: float,
    retraction: str = "project",
) -> Tensor:
    """Move a point towards a target along the manifold, in every chart, and average the results by the weights.

    For inverse problems whose solution lies on a learned manifold.

    The charts are affine, z -> A z + b, the objective half the squared distance; ``nk.create("chart-step",
    ...).descend`` takes any encoders, decoders and objective. With z the code of the point, g the gradient with respect
    to it, and M = AᵀA,

        "project":    decode(encode(decode(z) - step_size A M⁻¹ g)), of the point itself in place of decode(z)
        "chart":      decode(z - step_size M⁻¹ g)
        "euclidean":  decode(z - step_size g)

    Charts with a weight below 1e-6 are left out, and the others not weighed anew.

    Args:
        point: where the step begins, (D,).
        matrix: A of the charts, (K, D, d).
        shift: b of the charts, (K, D).
        weights: of the charts, (K,); see ``chart-responsibility``.
        target: where the objective is 0, (D,).
        step_size: how far.
        retraction: ``"project"``, ``"chart"`` or ``"euclidean"``.

    Manifold Learning by Mixture Models of VAEs for Inverse Problems (Alberti et al., 2024), arXiv 2303.15244.
    """
    wide = reals("chart-step", "point", point, (None,))
    a = reals("chart-step", "matrix", matrix, (None, len(point), None), point)
    b = reals("chart-step", "shift", shift, tuple(a.shape[:2]), point)
    share = reals("chart-step", "weights", weights, (len(a),), point)
    goal = reals("chart-step", "target", target, tuple(point.shape), point)
    step = check.number("chart-step", "step_size", step_size)
    retraction = check.choice("chart-step", "retraction", retraction, RETRACTIONS)
    share = torch.where(share < LEAST, 0, share)
    with full_precision(point):
        encode = torch.linalg.pinv(a)
        code = (encode @ (wide - b).unsqueeze(-1)).squeeze(-1)
        slope = (a.mT @ ((a @ code.unsqueeze(-1)).squeeze(-1) + b - goal).unsqueeze(-1)).squeeze(-1)
        if retraction != "euclidean":
            slope = torch.linalg.solve(a.mT @ a, slope.unsqueeze(-1)).squeeze(-1)
        if retraction == "project":
            moved = wide - step * (a @ slope.unsqueeze(-1)).squeeze(-1)
            code = (encode @ (moved - b).unsqueeze(-1)).squeeze(-1)
        else:
            code = code - step * slope
        results = (a @ code.unsqueeze(-1)).squeeze(-1) + b
        return (share @ results).to(point.dtype)


@beside(chart_step)
def descend(
    point: Tensor,
    weights: Tensor,
    encoders: list[Callable[[Tensor], Tensor]],
    decoders: list[Callable[[Tensor], Tensor]],
    objective: Callable[[Tensor], Tensor],
    *,
    step_size: float,
    retraction: str = "project",
) -> Tensor:
    """Take the same step in charts that are functions: ``encoders`` and ``decoders``, K each, of one point."""
    reals("chart-step", "point", point, (None,))
    share = reals("chart-step", "weights", weights, (len(encoders),), point)
    if len(decoders) != len(encoders):
        raise ValueError(f"chart-step: decoders must be {len(encoders)}, as the encoders, not {len(decoders)}")
    step = check.number("chart-step", "step_size", step_size)
    retraction = check.choice("chart-step", "retraction", retraction, RETRACTIONS)
    kept = [k for k, one in enumerate(share.tolist()) if one >= LEAST]
    results = (_move(point, encoders[k], decoders[k], objective, step, retraction) * share[k] for k in kept)
    return sum(results, torch.zeros_like(accurate(point))).to(point.dtype)


def _move(point, encode, decode, objective, step: float, retraction: str) -> Tensor:
    """Where one chart takes the point; its functions get the type of the point, or of their own code."""
    code = encode(point)
    slope = accurate(torch.func.grad(lambda z: objective(decode(z)))(code))
    jacobian = accurate(torch.func.jacfwd(decode)(code))
    with full_precision(point):
        if retraction != "euclidean":
            slope = torch.linalg.solve(jacobian.mT @ jacobian, slope)
        along = jacobian @ slope
    if retraction == "project":
        return decode(encode((point - step * along).to(point.dtype)))
    return decode((code - step * slope).to(code.dtype))
