"""Local response normalization: channels divided by their neighbours' energy."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.activation._layout import in_layout_of
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.sharded import Parts, by_parts
from normkit.statistics import accurate


@method(
    "local-response-norm",
    paper="ImageNet Classification with Deep Convolutional Neural Networks (Krizhevsky et al., 2012)",
    evidence="library",
    shape="N C +",
    over="C/size",
    example={"size": 5},
    aliases=("lrn",),
    called={"torch.nn.LocalResponseNorm": "size alpha beta k"},
    peer=lambda _: nn.LocalResponseNorm(5),
)
class LocalResponseNorm(Norm):
    """Divide each channel by a power of the mean square of the channels around it, position by position.

    For loading AlexNet and GoogLeNet. It neither centers nor fixes a scale, and learns nothing: a new convolutional
    network takes ``batchnorm``, or ``groupnorm`` with small batches.

    Neighbouring channels compete. With s the sum of x² over the channels c - size // 2 to c + (size - 1) // 2 that
    exist, divided by ``size`` everywhere,

        y = x / (k + alpha * s)^beta

    Args:
        size: how many channels are summed.
        alpha: weight of their mean square.
        beta: the power.
        k: added to it.

    Input ``(N, C, *space)`` with at least one axis of space, any C; nothing is learned.

    ImageNet Classification with Deep Convolutional Neural Networks (Krizhevsky, Sutskever, Hinton, 2012). As in torch,
    alpha is divided by ``size``; in the paper it is not.
    """

    def __init__(self, size: int, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        super().__init__()
        self.size = check.size(self, "size", size)
        self.alpha = check.number(self, "alpha", alpha)
        self.beta = check.number(self, "beta", beta)
        self.k = check.number(self, "k", k)

    @by_parts
    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        check.floating(self, x)
        if x.dim() < 3:
            raise ValueError(f"LocalResponseNorm: x must be (N, C, *space), but its shape is {tuple(x.shape)}")
        if not x.numel():
            return x
        exact = accurate(x)
        squares = F.pad(exact.square().flatten(2).unsqueeze(1), (0, 0, self.size // 2, (self.size - 1) // 2))
        around = F.avg_pool2d(squares, (self.size, 1), stride=1).squeeze(1).reshape(x.shape)
        return self._divide(x, exact, around)

    def _divide(self, x: Tensor, exact: Tensor, around: Tensor) -> Tensor:
        return in_layout_of(x, (exact * (self.k + self.alpha * around).pow(-self.beta)).to(x.dtype))

    def over_parts(self, part: Parts) -> Tensor:
        """Normalize channels whose neighbours lie on other processes, by an exchange of these."""
        exact, own = accurate(part.local), part.local.shape[1]
        squares, missing = part.with_neighbours(exact.square(), 1, 1, self.size // 2, (self.size - 1) // 2)
        squares = F.pad(squares.movedim(1, -1), missing).movedim(-1, 1)
        around = sum((squares.narrow(1, at, own) for at in range(self.size)), start=torch.zeros_like(exact))
        return self._divide(part.local, exact, around / self.size)
