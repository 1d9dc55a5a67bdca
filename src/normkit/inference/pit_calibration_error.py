"""How far predicted distributions are from calibrated: their values at the outcomes should be uniform."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._pit import fill, outcomes

METHODS = ("sorted", "levels")
NAME = "pit-calibration-error"


@method(
    NAME,
    paper="A Large-Scale Study of Probabilistic Calibration in Neural Network Regression (Dheur and Ben Taieb, 2023), "
    "arXiv 2306.02738",
    shape="N : unit",
    over="N",
)
def pit_calibration_error(
    pit: Tensor, *, power: float = 1, method: str = "sorted", levels: int = 100, sharpness: float | None = None
) -> Tensor:
    """Measure how far the predicted distribution's values at the outcomes are from uniform.

    For testing a regression that predicts distributions, or with a power of 2 for training it: 90 % of outcomes should
    lie below its 90 % quantile. It does not see how wide predictions are, so report a likelihood beside it. To repair a
    trained model take ``quantile-recalibration`` or ``conformal-quantiles``.

    With z the N values,

        sorted  mean_i |z_(i) - i / (N + 1)|^power,    z in order
        levels  mean_j |p_j - a_j|^power,    a_j = (j - 1/2) / levels, p_j the share of z <= a_j

    With a sharpness s the share is the mean of sigmoid(s (a_j - z)), which has a gradient. A sample drawn from the
    predicted distributions itself has an error above 0.

    Args:
        pit: the predicted distribution functions at the outcomes, (N,), in [0, 1].
        power: of the differences.
        method: which of the two.
        levels: how many there are.
        sharpness: s; None: a hard count.

    A Large-Scale Study of Probabilistic Calibration (Dheur and Ben Taieb, 2023), arXiv 2306.02738.
    """
    z = outcomes(NAME, "pit", pit)
    fill(NAME, "pit", pit)
    power = check.number(NAME, "power", power, 0.0, open_low=True)
    check.choice(NAME, "method", method, METHODS)
    count = check.size(NAME, "levels", levels)
    if sharpness is not None:
        sharpness = check.number(NAME, "sharpness", sharpness, 0.0, open_low=True)
    if method == "sorted":
        steps = torch.arange(1, len(z) + 1, device=z.device, dtype=z.dtype)
        return (z.sort().values - steps / (len(z) + 1)).abs().pow(power).mean().to(pit.dtype)
    at = (torch.arange(count, device=z.device, dtype=z.dtype) + 0.5) / count
    return (_share(z, at, sharpness) - at).abs().pow(power).mean().to(pit.dtype)


def _share(z: Tensor, at: Tensor, sharpness: float | None) -> Tensor:
    """The share of z below each level."""
    if sharpness is None:
        return torch.searchsorted(z.detach().sort().values, at, right=True).to(z.dtype) / len(z)
    return torch.sigmoid(sharpness * (at.unsqueeze(1) - z)).mean(1)
