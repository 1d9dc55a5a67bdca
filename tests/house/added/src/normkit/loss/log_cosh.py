"""Log-cosh: squares near zero, lengths far from it."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import softplus

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate


@method(
    "log-cosh",
    paper="An example of the tests (normkit, 2026)",
    shape="N C",
    inputs={"target": "N C"},
    evidence="equations",
)
class LogCosh(Loss):
    """Compare numbers by the logarithm of the cosine hyperbolicus of what they differ by.

    For regression with outliers, of which each pulls no harder than ``scale``.

        mean scale^2 log cosh((x - target) / scale)

    Args:
        scale: where squares end.

    ``loss(x, target)``: two tensors of one shape.

    An example of the tests (normkit, 2026).
    """

    def __init__(self, scale: float = 1.0):
        super().__init__()
        self.scale = check.number(self, "scale", scale, 0.0, open_low=True)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss, a single number."""
        check.values(self, "x", x, (None, None), x)
        check.values(self, "target", target, x.shape, x)
        off = (accurate(x) - accurate(target)) / self.scale
        return (self.scale**2 * (off + softplus(-2 * off) - math.log(2)).mean()).to(x.dtype)
