"""FedTiny's choice: batch statistics of several models averaged over devices, and the best of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated import _states

NAME = "batchnorm-candidates"


class Candidates(NamedTuple):
    """Mean and variance (M, D) and loss (M,) of each candidate, and which has the smallest loss."""

    mean: Tensor
    var: Tensor
    loss: Tensor
    best: Tensor


@method(
    NAME,
    paper="Distributed Pruning Towards Tiny Neural Networks in Federated Learning (Huang et al., 2023), "
    "arXiv 2212.01977",
    shape="K S C",
    over="K",
    inputs={"var": "K S C : unit", "count": "K : unit", "loss": "K S"},
    provenance="a later library of the first author's group; the paper's own code is not public",
)
def batchnorm_candidates(mean: Tensor, var: Tensor, count: Tensor, loss: Tensor) -> Candidates:
    """Average the batch statistics of candidate models over devices, and pick the candidate of the least loss.

    For choosing among pruned models without sending data: devices re-estimate statistics, the server averages them,
    devices send the losses that they then have.

        mean_m = sum_k n_k mean_km / sum_k n_k,    var_m likewise,    loss_m = mean_k loss_km

    The first of equal candidates is taken. Variances are averaged without the spread of the devices' means;
    ``statistics.merge`` is the exact rule.

    Args:
        mean, var: (K, M, D), for K devices, M candidates, D features of all layers.
        count: the devices' samples, (K,).
        loss: (K, M); the authors' are sums over a device's samples.

    Distributed Pruning Towards Tiny Neural Networks in Federated Learning (Huang et al., 2023), arXiv 2212.01977.
    """
    check.values(NAME, "mean", mean, (None, None, None), mean)
    check.values(NAME, "var", var, mean.shape, mean)
    check.shape(NAME, "count", count, mean.shape[:1], mean)
    check.values(NAME, "loss", loss, mean.shape[:2], mean)
    for name, value in {"mean": mean, "var": var, "count": count, "loss": loss}.items():
        _states.finite(NAME, name, value)
    weights = _states.counts(NAME, "count", count, len(mean))
    losses = _states.mean(loss, torch.ones_like(weights))
    best = (losses == losses.min()).nonzero()[0, 0]
    return Candidates(
        _states.mean(mean, weights).to(mean.dtype),
        _states.mean(var, weights).to(var.dtype),
        losses.to(loss.dtype),
        best,
    )
