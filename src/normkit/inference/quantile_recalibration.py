"""Quantile recalibration: predicted probabilities, mapped to how often they came true."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._pit import fill, outcomes

MAPS = ("empirical", "linear", "smooth")
NAME = "quantile-recalibration"


@method(
    NAME,
    paper="A Large-Scale Study of Probabilistic Calibration in Neural Network Regression (Dheur and Ben Taieb, 2023), "
    "arXiv 2306.02738",
    shape="B : unit",
    over="B",
    inputs={"pit": "N : unit"},
)
def quantile_recalibration(
    calibration: Tensor, pit: Tensor, *, map: str = "empirical", sharpness: float = 100.0
) -> Tensor:
    """Map the values of predicted distribution functions to the share of held-out data that lay below them.

    For a trained regression that says 90 % where 70 % is true: the distribution function F becomes map(F), its density
    map'(F) f. With c the values at held-out outcomes, in order,

        empirical  the share of c <= z, which has no density
        linear     straight lines through (0, 0), (c_k, k / (N + 1)) and (1, 1); equal c are one knot
        smooth     (R(z) - R(0)) / (R(1) - R(0)),   R(t) = 1 - K(2 - t) + K(t) - K(-t),
                   K(t) = mean_k sigmoid(sharpness (t - c_k))

    Args:
        calibration: c, distribution functions at held-out outcomes, (N,), in [0, 1].
        pit: z, what is mapped, (M,), in [0, 1].
        map: which of the three.
        sharpness: of the smooth map; one over its bandwidth.

    A Large-Scale Study of Probabilistic Calibration (Dheur and Ben Taieb, 2023), arXiv 2306.02738.
    """
    c, z = outcomes(NAME, "calibration", calibration), outcomes(NAME, "pit", pit, calibration)
    fill(NAME, "calibration", calibration)
    check.choice(NAME, "map", map, MAPS)
    sharpness = check.number(NAME, "sharpness", sharpness, 0.0, open_low=True)
    if map == "smooth":
        low, high = _reflect(c.new_zeros(1), c, sharpness), _reflect(c.new_ones(1), c, sharpness)
        return ((_reflect(z, c, sharpness) - low) / (high - low)).to(pit.dtype)
    c = c.sort().values
    if map == "empirical":
        below = torch.searchsorted(c, z.detach().to(c.dtype), right=True).to(c.dtype)
        return (below / len(c)).to(pit.dtype)
    return _linear(c, z).to(pit.dtype)


def _reflect(t: Tensor, c: Tensor, sharpness: float) -> Tensor:
    """A smooth distribution function of c, mirrored at 0 and 1."""
    smooth = [torch.sigmoid(sharpness * (at.unsqueeze(1) - c)).mean(1) for at in (2 - t, t, -t)]
    return 1 - smooth[0] + smooth[1] - smooth[2]


def _linear(c: Tensor, z: Tensor) -> Tensor:
    """Straight lines between the knots."""
    ends = torch.cat([c.new_zeros(1), c, c.new_ones(1)])
    count = ends.detach().unique_consecutive(return_counts=True)[1]
    behind = count.cumsum(0)
    x, y = ends[behind - 1], (2 * behind - count - 1).to(ends.dtype) / (2 * (len(c) + 1))  # of equal knots the middle
    at = torch.searchsorted(x, z.detach().to(x.dtype), right=True).clamp(1, max(len(x) - 1, 1)) - 1
    return y[at] + (z - x[at]) * (y[at + 1] - y[at]) / (x[at + 1] - x[at])
