"""Alpha dropout: dropout that keeps mean and variance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate


@method(
    "alpha-dropout",
    paper="Self-Normalizing Neural Networks (Klambauer et al., 2017), arXiv 1706.02515",
    shape="... C",
    over="",
    inputs={"mask?": "... C : mask"},
)
class AlphaDropout(Method):
    """Set some numbers to the least that SELU gives, and shift and scale all so that mean and variance stay.

    For networks of ``selu``. Behind any other activation take plain dropout.

    With the mask m, 1 where a number is kept, and q = 1 - p,

        y = a (x m + alpha (1 - m)) + b
        a = sqrt(var / (q (p (alpha - mean)^2 + var))),    b = mean - a (q mean + p alpha)

    In evaluation y = x.

    Args:
        p: the share that is dropped.
        alpha: what it is set to.
        mean, var: of the input, and so of y. 0 and 1 are torch.nn.AlphaDropout.

    ``dropout(x)`` draws the mask, one number an entry; ``dropout(x, mask)`` takes it.

    Self-Normalizing Neural Networks (Klambauer et al., 2017), arXiv 1706.02515.
    """

    def __init__(self, *, p: float = 0.1, alpha: float = -1.7580993408473766, mean: float = 0.0, var: float = 1.0):
        super().__init__()
        self.p = check.number(self, "p", p, 0.0, 1.0)
        if p == 1:
            raise ValueError(f"{type(self).__name__}: p must be below 1, for nothing would be left")
        self.alpha, self.mean = check.number(self, "alpha", alpha), check.number(self, "mean", mean)
        self.var = check.number(self, "var", var, 0.0, open_low=True)
        self.gain = math.sqrt(var / ((1 - p) * (p * (alpha - mean) ** 2 + var)))
        self.shift = mean - self.gain * ((1 - p) * mean + p * alpha)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Drop some of ``x`` in training; ``mask`` of its shape says what is kept."""
        check.floating(self, x)
        if isinstance(mask, Tensor) and mask.dtype is torch.bool:
            mask = mask.to(x.dtype)
        if mask is not None:
            check.values(self, "mask", mask, x.shape, x)
        if not self.training or self.p == 0:
            return x
        kept = (torch.rand_like(x, dtype=torch.float32) >= self.p) if mask is None else mask
        kept = accurate(kept.to(x.dtype))
        return (self.gain * (accurate(x) * kept + self.alpha * (1 - kept)) + self.shift).to(x.dtype)
