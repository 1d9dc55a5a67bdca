"""Kernels of several attributes joined by the logarithms, each of one length."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.manifold import _symmetric
from normkit.manifold._points import square
from normkit.statistics import reals, root

DIRECTIONS = ("increase", "decrease")
FACTORS = ("score", "max", "mean", None)


@method(
    "tangent-normalization",
    paper="MS-DPPs: Multi-Source Determinantal Point Processes for Contextual Diversity Refinement of Composite "
    "Attributes in Text to Image Retrieval (Sogi et al., 2025), arXiv 2507.06654",
    shape="3 N N : definite",
    over="N",
    inputs={"image": "N N : definite", "relevance": "N : unit"},
    exempt={"second-derivatives": _symmetric.FIRST},
)
def tangent_normalization(
    attributes: Tensor,
    image: Tensor,
    relevance: Tensor,
    *,
    beta: float = 0.5,
    direction: str = "increase",
    norm_factor: str | None = "score",
    ridge: float = 1e-3,
) -> Tensor:
    """Join kernels in the tangent space of positive definite matrices, where each is first given the same norm.

    For diversity by several attributes, a determinantal point process of the result: without it the attribute whose
    kernel has the largest logarithm decides alone. With E_s and G the logarithms of kernels plus ridge, and f the
    factor,

        E_s <- f E_s / |E_s|,    G <- f G / |G|,    E <- f E / |E|  of their mean E
        out = exp(+-(1 - beta) E + beta G)

    Args:
        attributes: kernels (m, N, N).
        image: the kernel of the images, (N, N).
        relevance: scores in (0, 1), (N,).
        beta: the share of the images.
        direction: ``"increase"`` the diversity of the attributes, or ``"decrease"`` it: the minus.
        norm_factor: f: ``"score"``, the norm of the logarithms of the scores; ``"max"`` or ``"mean"`` of the norms of
            all E_s and G; None: no normalization.
        ridge: added to the diagonal of every kernel; where an eigenvalue is negative still, its logarithm is 0.

    MS-DPPs: Multi-Source Determinantal Point Processes (2025).
    """
    owner = "tangent-normalization"
    kernels = square(owner, "attributes", attributes, 3)
    n = kernels.shape[-1]
    picture = reals(owner, "image", image, (n, n), attributes)
    scores = reals(owner, "relevance", relevance, (n,), attributes)
    if check.readable(scores) and not ((scores > 0) & (scores <= 1)).all():
        raise ValueError(
            f"{owner}: relevance must lie in (0, 1], but goes from {scores.min():.6g} to {scores.max():.6g}"
        )
    beta = check.number(owner, "beta", beta, 0.0, 1.0)
    ridge = check.number(owner, "ridge", ridge, 0.0, check.LARGEST)
    check.choice(owner, "direction", direction, DIRECTIONS)
    check.choice(owner, "norm_factor", norm_factor, FACTORS)
    logs, other = _log(kernels, ridge), _log(picture, ridge)
    if norm_factor is not None:
        factor = _factor(norm_factor, logs, other, scores)
        logs, other = _scale(logs, factor), _scale(other, factor)
        mean = _scale(logs.mean(0), factor)
    else:
        mean = logs.mean(0)
    sign = 1 if direction == "increase" else -1
    return _symmetric.exp(sign * (1 - beta) * mean + beta * other).to(attributes.dtype)


def _log(kernel: Tensor, ridge: float) -> Tensor:
    full = _symmetric.symmetric(kernel) + ridge * torch.eye(kernel.shape[-1], dtype=kernel.dtype, device=kernel.device)
    return _symmetric.apply(
        full,
        lambda e: torch.where(e > 0, e, 1).log(),
        lambda e: torch.where(e > 0, 1 / torch.where(e > 0, e, 1), 0),
    )


def _norm(matrix: Tensor) -> Tensor:
    return root(matrix.square().sum((-2, -1), keepdim=True))


def _scale(matrix: Tensor, factor: Tensor) -> Tensor:
    length = _norm(matrix)
    return matrix * (factor / torch.where(length > 0, length, 1))


def _factor(kind: str, logs: Tensor, other: Tensor, scores: Tensor) -> Tensor:
    if kind == "score":
        return root(scores.log().square().sum())
    norms = torch.cat([_norm(logs).flatten(), _norm(other).flatten()])
    return norms.max() if kind == "max" else norms.mean()
