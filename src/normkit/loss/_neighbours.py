"""Distances to the nearest neighbours, of which local dimensions are made."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.statistics import accurate, full_precision, root

ESTIMATORS = ("moments", "moments-eps", "mle")


def dimensions(owner: object, data: Tensor, reference: Tensor, k: int, estimator: str) -> Tensor:
    """Return the local dimension of each row of ``data`` among those of ``reference``, (N,), in the accurate type.

    Gradients reach ``data`` alone. Where the k-th neighbour is as far as the mean of those before it, it is infinite.
    """
    for name, rows in (("data", data), ("reference", reference)):
        check.floating(owner, rows, name)
    if data.dim() < 2 or len(data) < 4:
        raise ValueError(f"{check.whose(owner)}: data must have at least 4 rows, but its shape is {tuple(data.shape)}")
    check.shape(owner, "reference", reference, (None, *data.shape[1:]), data)
    k = min(k, len(data) - 2)
    if len(reference) < k + 1:
        raise ValueError(
            f"{check.whose(owner)}: reference must have more than k={k} rows, but its shape is {tuple(reference.shape)}"
        )
    wide = accurate(data).flatten(1)
    others = accurate(reference.detach()).to(wide.dtype).flatten(1)
    nearest = _distances(wide, others, k)
    return _of_distances(nearest[:, :-1], nearest[:, -1], k, estimator)


def _distances(data: Tensor, reference: Tensor, k: int) -> Tensor:
    """Return the distances (N, k) of rows to their nearest, in order, without the first, which is the row itself.

    Products of matrices are noise near 0, but their gradient is not: it alone is theirs, and no difference of pairs is
    held.
    """
    with torch.no_grad():
        apart = torch.cdist(data.detach(), reference, compute_mode="donot_use_mm_for_euclid_dist")
        nearest, index = (value[:, 1:] for value in apart.topk(k + 1, largest=False))
        center = reference.mean(0)
        reference = reference - center
    data = data - center
    with full_precision(data):
        products = (data @ reference.T).gather(1, index)
    squares = data.square().sum(1, keepdim=True) - 2 * products
    return root(nearest.square() + (squares - squares.detach()))


def _of_distances(inner: Tensor, last: Tensor, k: int, estimator: str) -> Tensor:
    if estimator == "mle":
        apart = last > 0
        share = inner / torch.where(apart, last, 1).unsqueeze(1)
        return torch.where(apart, -k / (share + 1e-4).log().sum(1), torch.inf)
    mean = inner.mean(1)
    if estimator == "moments-eps":
        return mean / (last - mean + 1e-4)
    apart = last > mean
    return torch.where(apart, mean / torch.where(apart, last - mean, 1), torch.inf)
