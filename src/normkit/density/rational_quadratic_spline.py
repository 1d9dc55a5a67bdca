"""The rational-quadratic spline: a monotone curve through learned knots, and its inverse in closed form."""

from __future__ import annotations

import math

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Transform
from normkit.ops.spline import Knots, spline
from normkit.statistics import accurate

BOX = "numbers outside of the box are refused; with linear tails they pass unchanged"


@method(
    "rational-quadratic-spline",
    paper="Neural Spline Flows (Durkan et al., 2019), arXiv 1906.04032",
    shape="N C : unit",
    inputs={"widths": "N C 4", "heights": "N C 4", "derivatives": "N C 5"},
    example={"num_bins": 4},
    exempt={
        "extremes huge": BOX,
        "extremes offset": BOX,
    },
)
class RationalQuadraticSpline(Transform):
    """Bend each number by a monotone curve of K pieces, each a quotient of two quadratics.

    For couplings and autoregressive flows: far more flexible than scale and shift, and the inverse is a root of a
    quadratic. Where forces are needed take ``smooth-mixture``, whose density has no jumps.

    Widths w and heights h of the bins are softmaxes with a floor, slopes d at the knots softplus with a floor. In a bin
    with s = h / w and t = (x - x_k) / w,

        D = s + (d_k + d_{k+1} - 2 s) t (1 - t)
        z = y_k + h (s t^2 + d_k t (1 - t)) / D
        log_det = log(s^2 (d_{k+1} t^2 + 2 s t (1 - t) + d_k (1 - t)^2)) - 2 log D

    Args:
        num_bins: K.
        tails: ``"linear"``: outside of [-tail_bound, tail_bound] the identity, and slopes of 1 at the ends; None:
            numbers outside of the box are refused.
        tail_bound: half the side of the box with tails.
        left, right, bottom, top: the box without.
        min_bin_width, min_bin_height: the least share of a bin.
        min_derivative: the least slope at a knot.

    ``forward(x, widths, heights, derivatives)`` and ``inverse(z, ...)`` return a value and its log-derivative, number
    by number: x of any shape S; widths and heights S + (K,), derivatives S + (K + 1,), or S + (K - 1,) with tails; all
    unconstrained. Half precision is worked out in float32.

    Neural Spline Flows (Durkan et al., 2019), arXiv 1906.04032.

    Differs from the authors' code in: the inverse checks its input against bottom and top, not left and right.
    """

    def __init__(
        self,
        num_bins: int,
        *,
        tails: str | None = None,
        tail_bound: float = 1.0,
        left: float = 0.0,
        right: float = 1.0,
        bottom: float = 0.0,
        top: float = 1.0,
        min_bin_width: float = 1e-3,
        min_bin_height: float = 1e-3,
        min_derivative: float = 1e-3,
    ):
        super().__init__()
        self.num_bins = check.size(self, "num_bins", num_bins)
        self.tails = check.choice(self, "tails", tails, (None, "linear"))
        bound = check.number(self, "tail_bound", tail_bound, 0.0, open_low=True)
        self.box = (-bound, bound, -bound, bound) if tails else (left, right, bottom, top)
        for name, edge in (("left", left), ("right", right), ("bottom", bottom), ("top", top)):
            check.number(self, name, edge)
        for low, high, names in ((*self.box[:2], "left and right"), (*self.box[2:], "bottom and top")):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(f"{type(self).__name__}: {names} must be finite and in order, not {low} and {high}")
        self.least = []
        for name, share in (("min_bin_width", min_bin_width), ("min_bin_height", min_bin_height)):
            check.number(self, name, share, 0.0)
            if share * num_bins > 1:
                raise ValueError(f"{type(self).__name__}: {name} must be at most 1 / num_bins, not {share}")
            self.least.append(share)
        self.min_derivative = check.number(self, "min_derivative", min_derivative, 0.0, 1.0)

    def forward(self, x: Tensor, widths: Tensor, heights: Tensor, derivatives: Tensor) -> tuple[Tensor, Tensor]:
        """Return the curve at ``x`` and the logarithm of its slope."""
        return self._pass("x", x, widths, heights, derivatives)

    def inverse(self, z: Tensor, widths: Tensor, heights: Tensor, derivatives: Tensor) -> tuple[Tensor, Tensor]:
        """Return where the curve is ``z``, and the logarithm of the inverse's slope."""
        return self._pass("z", z, widths, heights, derivatives)

    def _pass(self, name: str, x: Tensor, *raw: Tensor) -> tuple[Tensor, Tensor]:
        check.floating(self, x, name)
        slopes = self.num_bins + (-1 if self.tails else 1)
        sizes = (self.num_bins, self.num_bins, slopes)
        for key, values, size in zip(("widths", "heights", "derivatives"), raw, sizes, strict=True):
            check.values(self, key, values, (*x.shape, size), x)
        wide, inverse = accurate(x), name == "z"
        if not self.tails:
            self._refuse(name, wide, self.box[2:] if inverse else self.box[:2])
        knots = Knots(
            self.num_bins, self.box, self.tails is not None, (self.least[0], self.least[1], self.min_derivative)
        )
        value, log_det = spline(knots, wide, *map(accurate, raw), inverse=inverse)
        return value.to(x.dtype), log_det.to(x.dtype)

    def _refuse(self, name: str, x: Tensor, limits: tuple[float, float]) -> None:
        """Require numbers inside of the box; not read where a compiler or a transform is at work."""
        if not check.readable(x):
            return
        inside = (x >= limits[0]) & (x <= limits[1])
        if not inside.all():
            worst = x[~inside][0].item()
            raise ValueError(
                f"{type(self).__name__}: {name} must lie in [{limits[0]}, {limits[1]}], but {worst} is in it; "
                f"tails='linear' takes any number"
            )
