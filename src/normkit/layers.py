"""Linear maps and convolutions that compute in the type of their input, whatever type they are kept in."""

from __future__ import annotations

from torch import Tensor, nn


class Linear(nn.Linear):
    """A linear map of an input that may be of another floating-point type than the weight."""

    def forward(self, x: Tensor) -> Tensor:
        """Map the last axis of ``x``; the result has the type of ``x``."""
        return nn.functional.linear(x, self.weight.to(x.dtype), _as(self.bias, x))


class Conv2d(nn.Conv2d):
    """A convolution of an input that may be of another floating-point type than the weight."""

    def forward(self, x: Tensor) -> Tensor:
        """Convolve ``x``; the result has the type of ``x``."""
        return self._conv_forward(x, self.weight.to(x.dtype), _as(self.bias, x))


def _as(parameter: Tensor | None, x: Tensor) -> Tensor | None:
    return None if parameter is None else parameter.to(x.dtype)
