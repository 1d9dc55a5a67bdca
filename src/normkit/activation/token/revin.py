"""RevIN: a series normalized before a forecast, and the forecast brought back."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate, moments

DETACHED = "the authors let no gradient pass through mean and deviation"


class Scale(NamedTuple):
    """What was taken from a series: its centre and its deviation, (N, 1, C)."""

    center: Tensor
    deviation: Tensor


@method(
    "revin",
    paper="Reversible Instance Normalization for Accurate Time-Series Forecasting against Distribution Shift "
    "(Kim et al., ICLR 2022)",
    evidence="equations",
    shape="N T C",
    over="T",
    aliases=("reversible-instance-norm",),
    invariant=("shift", "scale"),
    provenance="the authors' equations in float64 in tests/activation/test_token_neighbours.py",
    exempt={"gradcheck": DETACHED, "higher-derivatives": DETACHED},
)
class RevIN(Norm):
    """Center and scale each series of a sample by its own moments over time; ``denormalize`` brings them back.

    For forecasts of series whose level and spread drift: the model sees normalized pasts, and its forecasts get the
    level and the spread of the past again. The model does not see the level, so nothing that it should know may hang on
    it.

    Over time, per sample and channel, with the biased variance v,

        s = sqrt(v + eps),     y = weight * (x - mean) / s + bias
        back:   z = (y - bias) / (weight + eps²) * s + mean

    Moments carry no gradient, as in the authors' code.

        y, scale = revin.normalize(past)
        forecast = revin.denormalize(model(y), scale)

    Args:
        num_features: C, the number of series of a sample.
        eps: added to the variance under the root.
        affine: learn ``weight`` and ``bias``.
        center: what is subtracted: ``"mean"``, or ``"last"``, the last value of the past.

    Input ``(N, T, C)``, or with several axes between the samples' and the last. ``revin(x)`` is y alone.

    Reversible Instance Normalization for Accurate Time-Series Forecasting against Distribution Shift (Kim et al., ICLR
    2022).

    Differs from the authors' code in: the moments are returned, not kept in the module.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, num_features: int, *, eps: float = 1e-5, affine: bool = True, center: str = "mean"):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.center = check.choice(self, "center", center, ("mean", "last"))
        self.register_parameter("weight", nn.Parameter(torch.ones(num_features)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features)) if affine else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized series."""
        return self.normalize(x)[0]

    def normalize(self, x: Tensor) -> tuple[Tensor, Scale]:
        """Return the normalized series, and what brings a forecast back."""
        check.features_last(self, x, self.num_features)
        if x.dim() < 3:
            raise ValueError(f"RevIN: x must be (N, T, {self.num_features}), but its shape is {tuple(x.shape)}")
        exact = accurate(x)
        scale = self._measure(exact.detach())
        y = (exact - scale.center) / scale.deviation
        y = y if self.weight is None else y * self.weight
        y = y if self.bias is None else y + self.bias
        return y.to(x.dtype), scale

    def denormalize(self, y: Tensor, scale: Scale) -> Tensor:
        """Bring a forecast (N, its own time, C) to the level and spread of the series that ``scale`` is from."""
        check.features_last(self, y, self.num_features, "y")
        if not isinstance(scale, tuple | list) or len(scale) != len(Scale._fields):
            raise TypeError(f"RevIN: scale must be what normalize returned, not {type(scale).__name__}")
        scale = Scale(*scale)
        for name, value in zip(Scale._fields, scale, strict=True):
            check.broadcasts(self, f"scale.{name}", value, y, "y")
        z = accurate(y)
        z = z if self.bias is None else z - self.bias
        z = z if self.weight is None else z / (self.weight + self.eps**2)
        return (z * scale.deviation + scale.center).to(y.dtype)

    def _measure(self, x: Tensor) -> Scale:
        time = tuple(range(1, x.dim() - 1))
        stats = moments(x, time)
        mean, var = (value.reshape(x.shape[0], *[1] * len(time), x.shape[-1]) for value in (stats.mean, stats.var))
        last = x.flatten(1, -2)[:, -1:].reshape(mean.shape) if x.numel() else mean
        return Scale(mean if self.center == "mean" else last, (var + self.eps).sqrt())
