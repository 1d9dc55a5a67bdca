"""The standard scaler of forecasting models."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.activation.token._scaler import SeriesScaler
from normkit.catalog import method
from normkit.statistics import moments


@method(
    "std-scale-norm",
    paper="GluonTS: Probabilistic Time Series Models in Python (Alexandrov et al., 2019), arXiv 1906.05264",
    evidence="library",
    shape="N T C",
    over="T",
    inputs={"observed": "N T C : mask"},
    aliases=("AutoformerStdScaler", "InformerStdScaler", "TimeSeriesStdScaler", "std-scaler"),
    invariant=("shift", "scale"),
)
class StdScaleNorm(SeriesScaler):
    """Center each series on its mean and divide it by its deviation, both over the steps that were observed.

    For one model of series of different levels and sizes. Where zeros should stay zeros, as in counts, take
    ``mean-scale-norm``.

    Over time, per sample and channel, n the number of observed steps, at least 1,

        location = sum(x) / n,    scale = sqrt(sum((x - location)²) / n + minimum_scale),    y = (x - location) / scale

    Args:
        minimum_scale: added under the root, a positive number.

    ``norm(x, observed)``: both (N, T, C), observed 0 or 1 -> (y, location, scale); location and scale are (N, 1, C).
    Entries that were not observed are scaled too. :meth:`denormalize` brings a forecast back.

    GluonTS: Probabilistic Time Series Models in Python (Alexandrov et al., 2019), arXiv 1906.05264, as in transformers.
    """

    def __init__(self, *, minimum_scale: float = 1e-5):
        super().__init__()
        self.minimum_scale = check.number(self, "minimum_scale", minimum_scale, 0.0, check.LARGEST, open_low=True)

    def forward(self, x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scale ``x``, and return y, location and scale."""
        z, seen, _ = self._observe(x, observed)
        stats = moments(z, (1,), mask=seen)
        location, scale = stats.mean.unsqueeze(1), (stats.var + self.minimum_scale).sqrt().unsqueeze(1)
        return ((z - location) / scale).to(x.dtype), location.to(x.dtype), scale.to(x.dtype)
