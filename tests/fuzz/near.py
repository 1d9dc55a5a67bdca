"""Running error analysis: a number as float64 has it, and how far from it another arithmetic may land.

Every operation adds what it may lose: half a unit in the last place of its result, and what its operands' errors become
in it. Sums lose ``depth`` units of the sum of their terms' sizes. So an operation written once in these numbers is its
own derivation of a bound, whatever the inputs.

>>> import torch
>>> third = Near(torch.tensor(1.0), 0, Unit(2.0**-24)) / 3
>>> bool(abs(torch.tensor(1.0) / 3 - third.value) <= third.error)
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Unit:
    """An arithmetic: half the distance from 1 to the next number, the smallest and the largest, what sums lose.

    ``depth``: units that a sum loses. ``pivoted``: means and variances are taken as `kernels/cpu/moments.h` says; else
    the mean is rounded before it is subtracted, which costs digits at an offset.
    """

    half: float
    least: float = 0.0
    most: float = torch.inf
    depth: float = 80.0
    pivoted: bool = True


class Near:
    """``value``, of float64, and a bound of the error of what stands for it."""

    def __init__(self, value: Tensor, error: Tensor | float, unit: Unit):
        self.value, self.unit = value, unit
        self.error = error if isinstance(error, Tensor) else torch.full_like(value, error)

    def _rounded(self, value: Tensor, error: Tensor) -> Near:
        size = value.abs()
        error = torch.add(error, size, alpha=self.unit.half)
        error = torch.where(error == 0, error, error + self.unit.least)  # 0 of exact numbers is exact
        return Near(value, torch.where(size + error <= self.unit.most, error, torch.inf), self.unit)

    def _near(self, other: Near | Tensor | float) -> Near:
        if isinstance(other, Near):
            return other
        return Near(torch.as_tensor(other, dtype=torch.float64), 0.0, self.unit)

    def __add__(self, other) -> Near:
        """Sum, rounded once."""
        if not isinstance(other, Near):
            return self._rounded(self.value + other, self.error)
        return self._rounded(self.value + other.value, self.error + other.error)

    def __neg__(self) -> Near:
        """Exact."""
        return Near(-self.value, self.error, self.unit)

    def __sub__(self, other) -> Near:
        """Difference, rounded once."""
        return self + -other

    def __rsub__(self, other) -> Near:
        """Difference with the sides exchanged."""
        return -self + other

    def __mul__(self, other) -> Near:
        """Product, rounded once."""
        if not isinstance(other, Near):
            return self._rounded(self.value * other, self.error * abs(other))
        error = (self.value.abs() + self.error) * other.error + other.value.abs() * self.error
        return self._rounded(self.value * other.value, error)

    def __truediv__(self, other) -> Near:
        """Quotient, rounded once; anything where the divisor may be 0."""
        other = self._near(other)
        value = self.value / other.value
        least = other.value.abs() - other.error
        error = (self.error + value.abs() * other.error) / least
        return self._rounded(value, torch.where(least > 0, error, torch.inf))

    __radd__, __rmul__ = __add__, __mul__

    def __rtruediv__(self, other) -> Near:
        """Quotient with the sides exchanged."""
        return self._near(other) / self

    def view(self, *shape) -> Near:
        """Reshape."""
        return Near(self.value.reshape(*shape), self.error.expand_as(self.value).reshape(*shape), self.unit)

    def map(self, change: Callable[[Tensor], Tensor]) -> Near:
        """Move, select or repeat entries."""
        return Near(change(self.value), change(self.error.expand_as(self.value)), self.unit)

    def sum(self, axes, depth: float = 0.0) -> Near:
        """Sum over ``axes``, which stay as 1; ``depth``: units lost, if they are more than sums lose elsewhere."""
        axes = tuple(axes)
        if not axes:  # which torch takes for all
            return self
        value = self.value.sum(axes, keepdim=True)
        size = self.value.abs().sum(axes, keepdim=True)
        error = self.error.expand_as(self.value).sum(axes, keepdim=True)
        lost = max(depth, self.unit.depth) * self.unit.half * size
        return Near(value, error + lost + self.unit.least, self.unit)

    def mean(self, axes) -> Near:
        """Mean over ``axes``, which stay as 1."""
        total = self.sum(axes)
        return total / (self.value.numel() / max(total.value.numel(), 1))

    def rising(self, function: Callable[[Tensor], Tensor], units: float = 1.0, least: float | None = None) -> Near:
        """A monotone function, good to ``units`` of its value; ``least`` is where its domain ends."""
        low, high = self.value - self.error, self.value + self.error
        value = function(self.value)
        error = torch.maximum((function(low) - value).abs(), (function(high) - value).abs())
        if least is not None:
            error = torch.where(low > least, error, torch.inf)
        return Near(value, error + units * self.unit.half * value.abs() + self.unit.least, self.unit)

    def smooth(self, function: Callable[[Tensor], Tensor], steepest: float, error: float) -> Near:
        """A function that nowhere rises faster than ``steepest``, good to an ``error`` in units of 1."""
        return Near(function(self.value), steepest * self.error + error * self.unit.half, self.unit)

    def square(self) -> Near:
        """The number times itself."""
        return self * self

    def root(self) -> Near:
        """Square root; 0 of 0."""
        found = Near(self.value.clamp(min=0), self.error, self.unit)
        low = (found.value - found.error).clamp(min=0).sqrt()
        value = found.value.sqrt()
        error = torch.maximum(value - low, (found.value + found.error).sqrt() - value)
        return self._rounded(value, error)

    def reciprocal_root(self) -> Near:
        """1 / sqrt; anything where the number may be 0."""
        return self.rising(torch.rsqrt, 2.0, least=0.0)

    def magnitude(self) -> Near:
        """Exact."""
        return Near(self.value.abs(), self.error, self.unit)

    def sign(self) -> Near:
        """-1, 0 or 1; where the number may be 0, any of them."""
        doubt = torch.where(self.value.abs() <= self.error, 2.0, 0.0) * (self.error > 0)
        return Near(self.value.sign(), doubt, self.unit)

    def where(self, condition: Tensor, doubt: Tensor) -> Near:
        """The number where ``condition``, else 0; either of them where there is ``doubt``."""
        value = torch.where(condition, self.value, 0)
        error = torch.where(condition, self.error, 0.0)
        return Near(value, torch.where(doubt, error + self.value.abs() + self.error, error), self.unit)

    def rounded_to(self, kind: torch.dtype) -> Near:
        """The number in another type."""
        info, size = torch.finfo(kind), self.value.abs() + self.error
        error = self.error + size * info.eps / 2 + info.tiny * info.eps
        return Near(self.value, torch.where(size < info.max, error, torch.inf), self.unit)

    def centered(self, axes) -> tuple[Near, Near]:
        """The number, which is exact, less its mean over ``axes``, and the variance."""
        axes, u = tuple(axes), self.unit.half
        first = self.value
        for axis in axes:  # a difference of near numbers is exact, so that the mean has all digits
            first = first.narrow(axis, 0, 1)
        near = self.value - first
        mean = near.mean(axes, keepdim=True)
        z = near - mean
        var = z.square().mean(axes, keepdim=True)
        mean, s = (first + mean).abs(), var.sqrt()
        if self.unit.pivoted:
            deep = self.value.numel() / max(mean.numel(), 1) / 1024 + 64 if u < 2.0**-50 else 0
            c = 2.0**-52 * mean
            off, doubt = (120 + deep) * u * s + c, (400 + 4 * deep) * u * var + 2 * c * s + c * c
        else:
            off = 4 * self.unit.depth * u * self.value.abs().mean(axes, keepdim=True)
            doubt = 4 * self.unit.depth * u * var + 2 * off * s + off.square()
        least = self.unit.least
        z_error = off + u * (2 * z.abs() + s) + least
        return Near(z, z_error, self.unit), Near(var, doubt + 2 * least, self.unit)
