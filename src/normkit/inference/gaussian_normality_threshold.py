"""How far normal samples lie from the mean of a Gaussian, at most, with a probability."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method

NAME = "gaussian-normality-threshold"


@method(
    NAME,
    paper="Modeling the Distribution of Normal Data in Pre-Trained Deep Features for Anomaly Detection (Rippel et al., "
    "2020), arXiv 2005.14140",
    shape="",
    over="",
    example={"num_features": 10},
    exempt={"gradcheck": "it takes no tensors"},
)
def gaussian_normality_threshold(*, num_features: int, probability: float = 0.9973) -> Tensor:
    """Return the distance from the mean that a Gaussian sample stays below with a probability.

    For ``gaussian-normality``, where there are no anomalies to set a threshold by: a guide, as features are not quite
    Gaussian. With q the quantile of chi-squared of ``num_features`` degrees of freedom,

        sqrt(q(probability))

    Args:
        num_features: of the features, K.
        probability: between 0 and 1; 0.9973 is that of three deviations in one dimension.

    Returns a float64. Modeling the Distribution of Normal Data (Rippel et al., 2020), arXiv 2005.14140.
    """
    half = torch.tensor(check.size(NAME, "num_features", num_features) / 2, dtype=torch.float64)
    probability = check.number(NAME, "probability", probability, 0.0, 1.0)
    if probability in (0.0, 1.0):
        raise ValueError(f"{NAME}: probability must lie between 0 and 1, not {probability}")
    low, high = torch.zeros_like(half), half + 10
    while torch.special.gammainc(half, high) < probability:
        high = 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        below = torch.special.gammainc(half, middle) < probability
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high).sqrt()
