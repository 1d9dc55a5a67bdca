"""The rational-quadratic spline: a monotone curve through learned knots, and its inverse in closed form."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Transform
from normkit.statistics import accurate

BOX = "numbers outside of the box are refused; with linear tails they pass unchanged"


class _Bin(NamedTuple):
    """What the curve is in the bin of each number: its corner, sizes and the slopes at both ends."""

    x: Tensor
    y: Tensor
    width: Tensor
    height: Tensor
    slope: Tensor
    next_slope: Tensor


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
    quadratic. Widths w and heights h of the bins are softmaxes with a floor, slopes d at the knots softplus with a
    floor. In a bin with s = h / w and t = (x - x_k) / w,

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
        min_derivative: the least slope.

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
        return self._pass("x", x, widths, heights, derivatives, self._up, self.box[:2])

    def inverse(self, z: Tensor, widths: Tensor, heights: Tensor, derivatives: Tensor) -> tuple[Tensor, Tensor]:
        """Return where the curve is ``z``, and the logarithm of the inverse's slope."""
        return self._pass("z", z, widths, heights, derivatives, self._down, self.box[2:])

    def _pass(self, name, x, widths, heights, derivatives, curve, limits) -> tuple[Tensor, Tensor]:
        check.floating(self, x, name)
        slopes = self.num_bins + (-1 if self.tails else 1)
        for key, given, size in (("widths", widths, 0), ("heights", heights, 0), ("derivatives", derivatives, slopes)):
            check.values(self, key, given, (*x.shape, size or self.num_bins), x)
        wide = accurate(x)
        low, high = limits
        inside = (wide >= low) & (wide <= high)
        if not self.tails:
            self._refuse(name, wide, inside, limits)
        value, log_det = curve(wide.clamp(low, high), accurate(widths), accurate(heights), accurate(derivatives))
        value, log_det = torch.where(inside, value, wide), torch.where(inside, log_det, 0)
        return value.to(x.dtype), log_det.to(x.dtype)

    def _refuse(self, name: str, x: Tensor, inside: Tensor, limits: tuple[float, float]) -> None:
        """Require numbers inside of the box; not read where a compiler or a transform is at work."""
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or x.is_meta:
            return
        if not inside.all():
            worst = x[~inside][0].item()
            raise ValueError(
                f"{type(self).__name__}: {name} must lie in [{limits[0]}, {limits[1]}], but {worst} is in it; "
                f"tails='linear' takes any number"
            )

    def _knots(self, raw: Tensor) -> Tensor:
        """The knots (2, ..., K + 1) along x and y, of what makes their bins."""
        count = self.num_bins
        shares = F.pad(torch.softmax(raw, -1).cumsum(-1)[..., :-1], (1, 1))
        shape = (2, *[1] * (raw.dim() - 2), -1)
        sides = [(self.box[at], self.box[at + 1] - self.box[at], self.least[at // 2]) for at in (0, 2)]
        steps = [[low + size * least * k for k in range(count)] + [low + size] for low, size, least in sides]
        sizes = [[size * (1 - least * count)] for _, size, least in sides]
        offsets, scales = (raw.new_tensor(values).reshape(shape) for values in (steps, sizes))
        return torch.addcmul(offsets, shares, scales)

    def _raw_slopes(self, raw: Tensor) -> Tensor:
        return F.pad(raw, (1, 1), value=math.log(math.expm1(1 - self.min_derivative))) if self.tails else raw

    def _find(self, place: Tensor, by_height: bool, widths: Tensor, heights: Tensor, derivatives: Tensor) -> _Bin:
        """The bin of each number, found by its knots along x or along y."""
        knots = self._knots(torch.stack([widths, heights]))
        below = (knots.detach()[int(by_height), ..., 1:-1] <= place.unsqueeze(-1)).sum(-1, keepdim=True)
        ends = torch.cat([below, below + 1], -1)
        near = knots.gather(-1, ends.expand(2, *ends.shape))
        corners, sizes = near[..., 0], near[..., 1] - near[..., 0]
        slopes = self.min_derivative + F.softplus(self._raw_slopes(derivatives).gather(-1, ends))
        return _Bin(*corners.unbind(0), *sizes.unbind(0), *slopes.unbind(-1))

    def _up(self, x: Tensor, *raw: Tensor) -> tuple[Tensor, Tensor]:
        k = self._find(x, False, *raw)
        s, t = k.height / k.width, (x - k.x) / k.width
        across = t * (1 - t)
        below = s + (k.slope + k.next_slope - 2 * s) * across
        return k.y + k.height * (s * t.square() + k.slope * across) / below, self._log_slope(k, s, t, below)

    def _down(self, z: Tensor, *raw: Tensor) -> tuple[Tensor, Tensor]:
        k = self._find(z, True, *raw)
        s, r = k.height / k.width, z - k.y
        bend = r * (k.slope + k.next_slope - 2 * s)
        a, b, c = bend + k.height * (s - k.slope), k.height * k.slope - bend, -s * r
        root = (b.square() - 4 * a * c).clamp(min=0).sqrt()
        t = 2 * c / (-b - root)
        below = s + (k.slope + k.next_slope - 2 * s) * t * (1 - t)
        return t * k.width + k.x, -self._log_slope(k, s, t, below)

    def _log_slope(self, k: _Bin, s: Tensor, t: Tensor, below: Tensor) -> Tensor:
        above = s.square() * (k.next_slope * t.square() + 2 * s * t * (1 - t) + k.slope * (1 - t).square())
        return above.log() - 2 * below.log()
