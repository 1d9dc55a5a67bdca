"""The negative entropy of a predicted distribution's values at the outcomes: least where they are uniform."""

from __future__ import annotations

import math

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._pit import outcomes

NAME = "pit-entropy"


@method(
    NAME,
    paper="A Large-Scale Study of Probabilistic Calibration in Neural Network Regression (Dheur and Ben Taieb, 2023), "
    "arXiv 2306.02738",
    shape="N : unit",
    over="N",
)
def pit_entropy(pit: Tensor, *, spacing: int = 64) -> Tensor:
    """Estimate the negative entropy of values in [0, 1] by the gaps between them.

    For training a regression that predicts distributions to be calibrated, as a term beside its likelihood. To report
    calibration take ``pit-calibration-error``. In the paper maps fitted afterwards calibrate best:
    ``quantile-recalibration``.

    Up to the estimate's bias it is how far the values are from uniform, in nats. With z the N values downwards and m
    the spacing, or floor(sqrt(N)) where that is above N / 2,

        mean_i - log((z_(i) - z_(i+m) + 1e-5) (N + 1) / m),    i = 1 .. N - m

    Fewer than two values give 0.

    Args:
        pit: the predicted distribution functions at the outcomes, (N,), in [0, 1].
        spacing: m, over how many values a gap goes.

    A Large-Scale Study of Probabilistic Calibration (Dheur and Ben Taieb, 2023), arXiv 2306.02738.
    """
    z, m = outcomes(NAME, "pit", pit), check.size(NAME, "spacing", spacing)
    count = len(z)
    if count < 2:
        return (z.sum() * 0).to(pit.dtype)
    m = m if m <= count // 2 else math.isqrt(count)
    z = z.sort(descending=True).values
    return -((z[:-m] - z[m:] + 1e-5) * ((count + 1) / m)).log().mean().to(pit.dtype)
