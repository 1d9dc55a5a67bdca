"""The mean scaler of forecasting models."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.activation.token._scaler import SeriesScaler
from normkit.catalog import method


@method(
    "mean-scale-norm",
    paper="GluonTS: Probabilistic Time Series Models in Python (Alexandrov et al., 2019), arXiv 1906.05264",
    evidence="library",
    shape="N T C",
    over="T",
    inputs={"observed": "N T C : mask"},
    aliases=("AutoformerMeanScaler", "InformerMeanScaler", "TimeSeriesMeanScaler", "mean-scaler"),
    exempt={"batches rows": "a series without an observation has the mean scale of the batch"},
)
class MeanScaleNorm(SeriesScaler):
    """Divide each series by its mean absolute value over the steps that were observed.

    For one model of series of very different sizes. Where levels differ as well, take ``std-scale-norm``.

    Over time, per sample and channel, n the number of observed steps,

        scale = max(sum |x| / n, minimum_scale),        y = x / scale
        where n = 0:  default_scale, or without it the sum of |x| over all samples, by the number of observed steps

    That fall-back makes a series of which nothing was observed depend on its neighbours in the batch.

    Args:
        default_scale: the scale of a series of which nothing was observed, not negative.
        minimum_scale: the least scale, a positive number.

    ``norm(x, observed)``: both (N, T, C), observed 0 or 1 -> (y, location, scale); location, which is 0, and scale are
    (N, 1, C). Entries that were not observed are scaled too. :meth:`denormalize` brings a
    forecast back.

    GluonTS: Probabilistic Time Series Models in Python (Alexandrov et al., 2019), arXiv 1906.05264, as in transformers.
    """

    def __init__(self, *, default_scale: float | None = None, minimum_scale: float = 1e-10):
        super().__init__()
        if default_scale is not None:
            default_scale = check.number(self, "default_scale", default_scale, 0.0, check.LARGEST)
        self.default_scale = default_scale
        self.minimum_scale = check.number(self, "minimum_scale", minimum_scale, 0.0, check.LARGEST, open_low=True)

    def forward(self, x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scale ``x``, and return y, location and scale."""
        z, seen, values = self._observe(x, observed)
        total, count = values.abs().sum(1, keepdim=True), seen.sum(1, keepdim=True)
        if self.default_scale is None:
            spare = total.sum(0, keepdim=True) / count.sum(0, keepdim=True).clamp(min=1)
        else:
            spare = torch.full_like(total, self.default_scale)
        scale = torch.where(count > 0, total / count.clamp(min=1), spare).clamp(min=self.minimum_scale)
        location = scale.masked_fill(count >= 0, 0)  # zeros, on the graph as the other results are
        return (z / scale).to(x.dtype), location.to(x.dtype), scale.to(x.dtype)
