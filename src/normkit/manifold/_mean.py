"""Means of positive definite matrices, with the convergence that they are iterated to."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, ops
from normkit.manifold import _symmetric
from normkit.manifold._points import definite, of_full_rank, square
from normkit.statistics import accurate

METRICS = ("affine-invariant", "log-euclidean", "bures-wasserstein")


@torch.no_grad()
def mean(
    x: Tensor,
    metric: str = "affine-invariant",
    *,
    weights: Tensor | None = None,
    tolerance: float | None = None,
    steps: int = 100,
) -> Tensor:
    """Return the Fréchet mean (n, n) of positive definite matrices (N, n, n): the least sum of squared distances.

    Args:
        x: the matrices.
        metric: ``"affine-invariant"`` (the geometric mean), ``"log-euclidean"``, which needs no steps, or
            ``"bures-wasserstein"`` (the barycenter of optimal transport).
        weights: of the matrices (N,), even unless given.
        tolerance: a step is the last where it moves the mean by no more than this share of it, in the metric's own
            tangent space at the identity; None: 1e-10, and 1e-5 in float32.
        steps: what does not converge in so many is a ValueError that tells how far it came.

    No gradient flows through it.

    >>> x = torch.diag_embed(torch.tensor([[1.0, 9.0], [4.0, 1.0]]))
    >>> mean(x).diagonal().round(decimals=4), mean(x, "bures-wasserstein").diagonal()
    (tensor([2., 3.]), tensor([2.2500, 4.0000]))
    """
    check.choice("mean", "metric", metric, METRICS)
    points = definite("mean", "x", square("mean", "x", x, 3)).double()  # in float32 steps of a wide spectrum stop short
    if not len(points):
        raise ValueError("mean: x has no matrices, and so no mean")
    share = _shares(weights, points)
    if metric == "log-euclidean":
        return _symmetric.exp(torch.tensordot(share, _symmetric.log(points), 1)).to(x.dtype)
    default = 1e-10 if x.dtype == torch.float64 else 1e-5
    least = default if tolerance is None else check.number("mean", "tolerance", tolerance, 0.0, open_low=True)
    step = _karcher if metric == METRICS[0] else _barycenter
    center, most = torch.tensordot(share, points, 1), check.size("mean", "steps", steps)
    for _ in range(most):
        center, moved = step(points, share, center)
        if moved <= least:
            return center.to(x.dtype)
    why = "; give more steps or another tolerance"
    flat = int((~of_full_rank(ops.eigvalsh(points).to(x.dtype))).sum())  # by what the type of x leaves of 0
    if flat:
        why = (
            f", as {flat} of {len(points)} matrices have an eigenvalue of 0, up to rounding; add a small multiple of "
            "the identity to each"
        )
    raise ValueError(
        f"mean: the last of {most} steps still moved it by a share of {moved.item():.3g}, above the tolerance of "
        f"{least:g}{why}"
    )


def _shares(weights: Tensor | None, points: Tensor) -> Tensor:
    if weights is None:
        return torch.full((len(points),), 1 / len(points), dtype=points.dtype, device=points.device)
    check.flags("mean", "weights", weights, (len(points),))
    wide = accurate(weights).to(points.dtype)
    if not (wide.isfinite().all() and (wide >= 0).all() and wide.sum() > 0):
        raise ValueError("mean: weights must be numbers from 0, not all of them 0")
    return wide / wide.sum()


def _karcher(points: Tensor, share: Tensor, center: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the geometric mean, and the slope's length in the tangent space at the mean, where 1 is a factor e.

    Far from a point the squared distance bends more than 1, and a whole step goes too far. So it is divided by the mean
    of the least and the largest bend.
    """
    of = _symmetric.spectrum(center)
    root, inverse = _symmetric.sqrt(of), _symmetric.rsqrt(of)
    seen = _symmetric.spectrum(_symmetric.symmetric(inverse @ points @ inverse))
    tangent = torch.tensordot(share, _symmetric.log(seen), 1)
    e = seen.values.clamp(min=_symmetric.finite(seen.values)).log()
    half = (e[:, -1] - e[:, 0]) / 2
    most = share @ torch.where(half > 1e-4, half / half.tanh(), 1)
    moved = _symmetric.exp(2 / (1 + most) * tangent)
    return _symmetric.symmetric(root @ moved @ root), tangent.norm() / len(tangent) ** 0.5


def _barycenter(points: Tensor, share: Tensor, center: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the barycenter, and how far the mean map is from the identity."""
    of = _symmetric.spectrum(center)
    root, inverse = _symmetric.sqrt(of), _symmetric.rsqrt(of)
    middle = torch.tensordot(share, _symmetric.sqrt(_symmetric.symmetric(root @ points @ root)), 1)
    off = inverse @ middle @ inverse - _symmetric.eye(center)
    return _symmetric.symmetric(inverse @ middle @ middle @ inverse), off.norm() / len(center) ** 0.5
