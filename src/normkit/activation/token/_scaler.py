"""What the scalers of series share: which entries were observed, and the way back from a forecast."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.norm import Norm
from normkit.statistics import accurate


class SeriesScaler(Norm):
    """Scale each series of a sample by a statistic over the steps that were observed."""

    minimum_scale: float

    def _observe(self, x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x in the type of statistics; where it was observed; and x again, 0 where it was not, whatever it held."""
        check.values(self, "x", x, (None, None, None), x)
        check.flags(self, "observed", observed, x.shape, x)
        z, seen = accurate(x), observed != 0
        return z, seen, torch.where(seen, z, 0)

    def denormalize(self, y: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """Bring a forecast (N, its own time, C) to the level and size of the series that location and scale are of."""
        check.values(self, "y", y, (None, None, None), y)
        for name, statistic in (("location", location), ("scale", scale)):
            check.values(self, name, statistic, (y.shape[0], 1, y.shape[2]), y)
        return (accurate(y) * scale + location).to(y.dtype)
