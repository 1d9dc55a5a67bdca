"""Data mollification: data under noise that fades away as training goes on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import reals


@method(
    "data-mollification",
    paper="One-Line-of-Code Data Mollification Improves Optimization of Likelihood-based Generative Models (Tran et "
    "al., 2023), arXiv 2305.18900",
    shape="... C",
    inputs={"noise": "... C", "iteration": " : index 10"},
    example={"iterations": 10},
)
class DataMollification(Method):
    """Mix data with noise, all noise at the first iteration and none from the last on.

    For flows and autoencoders on data near a manifold, whose likelihood is ill-conditioned at the start: training goes
    from a smooth density to the data's. The model does not know how much noise there is. With t = iteration /
    iterations, L the logistic function and v the clipped share of the way that is left,

        y = sqrt(1 - v) x + sqrt(v) noise
        v = (L(end / tau) - L((start + t (end - start)) / tau)) / (L(end / tau) - L(start / tau)),    0 once t >= 1

    Args:
        iterations: how many there is noise in, in whatever unit the caller counts.
        start, end: where on the logistic curve the noise begins and ends.
        tau: how long the curve is.
        clip_min: the least v before the last iteration.

    ``forward(x, noise, iteration)``: data of any shape, standardized, normal noise of that shape, and the iteration
    from 0, a number or a tensor of one. In evaluation x is as it was. ``variance(iteration)`` returns v.

    Data Mollification (Tran et al., 2023), arXiv 2305.18900.
    """

    def __init__(self, iterations: int, *, start: float = 0, end: float = 3, tau: float = 0.7, clip_min: float = 1e-9):
        super().__init__()
        self.iterations = check.size(self, "iterations", iterations)
        self.start, self.end = check.number(self, "start", start), check.number(self, "end", end)
        self.tau = check.number(self, "tau", tau, 0.0, open_low=True)
        self.clip_min = check.number(self, "clip_min", clip_min, 0.0, 1.0)
        self.first, self.last = (_logistic(at / self.tau) for at in (self.start, self.end))
        if not self.last > self.first:
            raise ValueError(f"{type(self).__name__}: end must be above start, not {end} and {start}")

    def forward(self, x: Tensor, noise: Tensor, iteration: Tensor | int) -> Tensor:
        """Mix data of any shape with noise of that shape."""
        check.floating(self, x)
        wide_noise = reals(self, "noise", noise, x.shape, x)
        if not isinstance(iteration, Tensor):
            iteration = torch.tensor(check.size(self, "iteration", iteration, least=0), device=x.device)
        check.shape(self, "iteration", iteration, (), x)
        if not self.training:
            self._whole(iteration)
            return x
        wide = reals(self, "x", x, x.shape)
        v = self.variance(iteration).to(wide.dtype)
        mixed = (1 - v).sqrt() * wide + v.sqrt() * wide_noise
        return torch.where(iteration < self.iterations, mixed, wide).to(x.dtype)

    def variance(self, iteration: Tensor) -> Tensor:
        """Return the share of noise at whole iterations."""
        self._whole(iteration)
        t = iteration.double() / self.iterations
        here = torch.sigmoid((self.start + t * (self.end - self.start)) / self.tau)
        left = ((self.last - here) / (self.last - self.first)).clamp(self.clip_min, 1)
        return torch.where(iteration < self.iterations, left, 0)

    def _whole(self, iteration: Tensor) -> None:
        if iteration.is_floating_point() or iteration.is_complex():
            raise TypeError(f"{type(self).__name__}: iteration must be a whole number, not {iteration.dtype}")


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))
