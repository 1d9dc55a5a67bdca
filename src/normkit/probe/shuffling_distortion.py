"""How far batch norm with fixed batches pulls the solution away from that of the full batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate, full_precision


class ShufflingDistortion(NamedTuple):
    """The optimum on features normalized batch by batch, that of the full batch, their distance, and both risks."""

    distorted: Tensor
    optimum: Tensor
    gap: Tensor
    distorted_risk: Tensor
    risk: Tensor


@method(
    "shuffling-distortion",
    paper="On the Training Instability of Shuffling SGD with Batch Normalization (Wu et al., 2023), arXiv 2302.12444",
    shape="E S",
    over="E",
    inputs={"y": "E", "orders": "P E : permutation"},
    invariant=("a shift of a feature",),
    exempt={"gradcheck": "a probe, not a loss: it has no gradient"},
)
@torch.no_grad()
def shuffling_distortion(
    x: Tensor, y: Tensor, orders: Tensor, *, batch_size: int = 4, eps: float = 1e-5
) -> ShufflingDistortion:
    """Measure how far normalizing batch by batch moves the least-squares optimum.

    For a loader that shuffles once, one order, against one that shuffles every epoch, many. With BN(b) the rows b
    normalized by their own mean and variance, F = BN(x), and F' the batches of all orders, each normalized, on y',

        optimum = argmin |F w - y|^2,    distorted = argmin |F' w - y'|^2,    gap = |distorted - optimum| / |optimum|

    The angle between the two tells one order from many better than the gap, of which both share a shrinkage.

    Args:
        x: what the norm is given, (n, d).
        y: the targets, (n,); they are not centred.
        orders: the order of the samples in an epoch, int64 (P, n).
        batch_size: consecutive samples normalized together; the last of an epoch may be fewer, but not one.
        eps: added to the variance.

    Returns ``distorted``, ``optimum``, ``gap``, and ``distorted_risk`` and ``risk``, the mean squares that are left of
    F' w - y' and of F w - y where w is distorted. No gradient.

    On the Training Instability of Shuffling SGD with Batch Normalization (Wu et al., 2023), arXiv 2302.12444.
    """
    name = "shuffling_distortion"
    _check(x, y, orders)
    size, eps = check.size(name, "batch_size", batch_size, 2), check.eps(name, eps)
    if len(x) % size == 1:
        raise ValueError(f"{name}: batch_size={size} leaves one of {len(x)} samples alone, which has no variance")
    wide = accurate(x)
    target = y.to(wide.dtype)
    full = _normalize(wide, eps)
    apart = torch.cat([_normalize(batch, eps) for batch in wide[orders].split(size, 1)], 1).flatten(0, 1)
    shuffled = target[orders].flatten()
    with full_precision(x):
        optimum, distorted = _fit(full, target), _fit(apart, shuffled)
        distorted_risk, risk = _risk(apart, distorted, shuffled), _risk(full, distorted, target)
    gap = (distorted - optimum).norm() / optimum.norm()
    return ShufflingDistortion(*(v.to(x.dtype) for v in (distorted, optimum, gap, distorted_risk, risk)))


def _check(x: Tensor, y: Tensor, orders: Tensor) -> None:
    name = "shuffling_distortion"
    check.values(name, "x", x, (None, None), x)
    check.values(name, "y", y, (len(x),), x)
    check.index(name, "orders", orders, (None, len(x)), len(x), x)
    if not x.numel() or not len(orders):
        raise ValueError(f"{name}: x and orders must not be empty, but are {tuple(x.shape)} and {tuple(orders.shape)}")


def _normalize(rows: Tensor, eps: float) -> Tensor:
    var, mean = torch.var_mean(rows, dim=-2, correction=0, keepdim=True)
    return (rows - mean) / (var + eps).sqrt()


def _fit(features: Tensor, target: Tensor) -> Tensor:
    return torch.linalg.pinv(features) @ target  # of any rank on every device, which torch.linalg.lstsq is not


def _risk(features: Tensor, weights: Tensor, target: Tensor) -> Tensor:
    return (features @ weights - target).square().mean()
