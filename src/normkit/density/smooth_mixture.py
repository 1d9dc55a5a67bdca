"""Smooth mixture transforms: a curve of the interval or of the circle with derivatives of every order."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Transform
from normkit.statistics import reals

# what is added to alpha, so that the density of a ramp has one mode -> by its power
UNIMODAL = {1: 0.8656721, 2: 0.3052033}
LEAST = 1e-8  # of what a ramp is a function of; below it is 0


@method(
    "smooth-mixture",
    paper="Smooth Normalizing Flows (Köhler et al., 2021), arXiv 2110.00351",
    shape="N C : unit",
    inputs={
        "mean": "N C components : unit",
        "log_scale": "N C components : unit",
        "alpha": "N C components : unit",
        "logits": "N C components",
    },
    example={"components": 3, "min_density": 0.1},
)
class SmoothMixture(Transform):
    """Bend each number of [0, 1] by a mixture of smooth steps.

    For couplings of angles and distances whose forces are needed: a spline's log-density has jumps in its second
    derivative, this one has none of any order, also not across the seam of the circle. Where no forces are needed take
    ``rational-quadratic-spline``, whose inverse is a root of a quadratic.

    The ramp is r(u) = exp(a (1 - u^-p)), the step s = r(u) / (r(u) + r(1 - u)), and S = exp(log_scale). With m = mean -
    1 / (2 S), on the circle mod 1, and q the slope,

        interval  y = (s(S (x - m)) - s(-S m)) / (s(S (1 - m)) - s(-S m))
        circle    y = s(S ((x - m) mod 1)) - s(S (-m mod 1)) + floor(x - m) + 1
        z = sum w ((1 - c) y + c x),    log_det = log sum w ((1 - c) q + c),    w = softmax(logits)

    Args:
        components: K.
        periodic: circle or interval; on the circle log_scale must not be negative.
        ramp: ``"type1"`` or ``"type2"``: p. a is alpha, and what makes the slope of one mode.
        min_density: c, the least slope, above 0: where a map is flat it cannot be inverted.

    ``forward(x, mean, log_scale, alpha, logits)``: x of any shape S, the others S + (K,), alpha not negative. Returns
    ``z`` and ``log_det``, number by number. ``inverse(z, ...)`` returns x by bisection; its derivatives up to the third
    are exact.

    Smooth Normalizing Flows (Köhler et al., 2021), arXiv 2110.00351.

    Differs from the authors' code in: log_scale is learned on the circle too, where their conditioner overwrites it.
    """

    def __init__(self, components: int, *, periodic: bool = True, ramp: str = "type1", min_density: float = 1e-6):
        super().__init__()
        self.components = check.size(self, "components", components)
        self.periodic = periodic
        self.power = ("type1", "type2").index(check.choice(self, "ramp", ramp, ("type1", "type2"))) + 1
        self.min_density = check.number(self, "min_density", min_density, 0.0, 1.0, open_low=True)

    def forward(
        self, x: Tensor, mean: Tensor, log_scale: Tensor, alpha: Tensor, logits: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the curve at ``x`` and the logarithm of its slope."""
        z, log_det = self._curve(*self._check_inputs("x", x, mean, log_scale, alpha, logits))
        return z.to(x.dtype), log_det.to(x.dtype)

    def inverse(self, z: Tensor, mean: Tensor, log_scale: Tensor, alpha: Tensor, logits: Tensor) -> Tensor:
        """Return where the curve is ``z``."""
        wide, *shape = self._check_inputs("z", z, mean, log_scale, alpha, logits)
        turns = wide.detach().floor() if self.periodic else torch.zeros_like(wide)
        wide = wide - turns
        with torch.no_grad():
            x = self._bisect(wide, *shape)
        # a Newton step from the root stays there, and each makes twice as many orders of derivatives right
        for _ in range(2):
            image, log_slope = self._curve(x, *shape)
            off = image - wide
            x = x - (off - off.detach()) / log_slope.exp()
        return (x + turns).to(z.dtype)

    def _check_inputs(self, name: str, x: Tensor, *shape: Tensor) -> list[Tensor]:
        check.floating(self, x, name)
        sizes = (*x.shape, self.components)
        names = ("mean", "log_scale", "alpha", "logits")
        wide = [reals(self, n, v, sizes, x) for n, v in zip(names, shape, strict=True)]
        log_scale = wide[1]
        if self.periodic and check.readable(log_scale) and (log_scale < 0).any():
            least = log_scale.min().item()
            raise ValueError(f"SmoothMixture: log_scale must not be negative on the circle, but one is {least:.6g}")
        return [reals(self, name, x, x.shape), *wide]

    def _curve(
        self, x: Tensor, mean: Tensor, log_scale: Tensor, alpha: Tensor, logits: Tensor
    ) -> tuple[Tensor, Tensor]:
        scale, x = log_scale.exp(), x.unsqueeze(-1)
        weight = torch.log_softmax(logits, -1)
        bend = self._on_circle if self.periodic else self._on_interval
        y, slope = bend(x, mean - 0.5 / scale, scale, alpha + UNIMODAL[self.power])
        c = self.min_density
        z = (weight.exp() * ((1 - c) * y + c * x)).sum(-1)
        return z, torch.logsumexp(((1 - c) * slope + c).log() + weight, -1)

    def _on_circle(self, x: Tensor, m: Tensor, scale: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        m = m.remainder(1)
        value, slope = self._step(scale * (x - m).remainder(1), alpha)
        start, _ = self._step(scale * (-m).remainder(1), alpha)
        return value - start + (x - m).floor() + (m != 0).to(x.dtype), scale * slope

    def _on_interval(self, x: Tensor, m: Tensor, scale: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = self._step(scale * (x - m), alpha)
        start, end = (self._step(scale * (at - m), alpha)[0] for at in (0, 1))
        return (value - start) / (end - start), scale * slope / (end - start)

    def _step(self, u: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """The smooth step from 0 to 1, a logistic function of the log ratio of its ramps, and its slope."""
        p, below, above = self.power, u.clamp(min=LEAST), (1 - u).clamp(min=LEAST)
        value = torch.sigmoid(alpha * (above**-p - below**-p))
        rise = p * alpha * (below ** (-p - 1) + above ** (-p - 1))
        return value, value * (1 - value) * rise

    def _bisect(self, z: Tensor, *shape: Tensor) -> Tensor:
        low, high = torch.zeros_like(z), torch.ones_like(z)
        for _ in range(60 if z.dtype == torch.float64 else 30):
            middle = (low + high) / 2
            above = self._curve(middle, *shape)[0] > z
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return (low + high) / 2
