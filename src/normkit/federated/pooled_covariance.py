"""GGEUR's pooling: mean and covariance of all clients' samples from those of each."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated import _states

NAME = "pooled-covariance"


class Pooled(NamedTuple):
    """Mean (D,) and biased covariance (D, D) of the joined samples."""

    mean: Tensor
    covariance: Tensor


@method(
    NAME,
    paper="Geometric Knowledge-Guided Localized Global Distribution Alignment for Federated Learning (Ma et al., "
    "2025), arXiv 2503.06457",
    shape="K C",
    over="K",
    inputs={"covariance": "K C C", "count": "K : unit"},
)
def pooled_covariance(mean: Tensor, covariance: Tensor, count: Tensor) -> Pooled:
    """Join the clients' means and covariances into those of all their samples, exactly.

    For one class of features: no sample leaves its client. With N = sum_k n_k, and covariances divided by n_k,

        mean = sum_k n_k mean_k / N
        covariance = sum_k n_k (covariance_k + (mean_k - mean)(mean_k - mean)ᵀ) / N

    A client with a count of 0 drops out, whatever its mean and covariance are. Sums are taken in float64.

    Args:
        mean: (K, D).
        covariance: biased, (K, D, D).
        count: n (K,).

    Geometric Knowledge-Guided Localized Global Distribution Alignment for Federated Learning (Ma et al., 2025),
    arXiv 2503.06457. ``geometric-samples`` draws from it.
    """
    check.values(NAME, "mean", mean, (None, None), mean)
    clients, features = mean.shape
    check.values(NAME, "covariance", covariance, (clients, features, features), mean)
    check.shape(NAME, "count", count, (clients,), mean)
    mean, covariance = (_states.where_counted(value, count) for value in (mean, covariance))
    for name, value in (("mean", mean), ("covariance", covariance), ("count", count)):
        _states.finite(NAME, name, value)
    weights = _states.counts(NAME, "count", count, clients)
    joined = _states.mean(mean, weights)
    apart = mean - joined
    spread = covariance + apart.unsqueeze(2) * apart.unsqueeze(1)
    return Pooled(joined.to(mean.dtype), _states.mean(spread, weights).to(covariance.dtype))
