"""DyT, dynamic tanh: a bounded function in the place of a norm."""

from __future__ import annotations

from torch import Tensor

from normkit import ops
from normkit.activation.token._pointwise import PointwiseNorm, scalar
from normkit.catalog import method


@method(
    "dyt",
    paper="Transformers without Normalization (Zhu, Chen, He, LeCun, Liu, 2025), arXiv 2503.10622",
    shape="... C",
    over="",
    aliases=("DynamicTanh", "dyntanh"),
    replaces=("layernorm", "rmsnorm"),
)
class DyT(PointwiseNorm):
    """Squash every entry with a tanh of learned slope instead of normalizing.

    For transformers, in the place of every LayerNorm or RMSNorm, where no statistic over the features is wanted. All
    norms go, not some. A language model needs its own starts of alpha, which change with the width; where they cannot
    be tuned, stay with ``rmsnorm``.

    With one slope alpha for the layer,

        y = tanh(alpha * x) * weight + bias

    Args:
        dim: number of features.
        alpha: where the layer's one slope starts: 0.5 for vision, diffusion, speech and DNA; language models take
            less the wider they are, and more in attention than elsewhere (width 4096: 0.8 and 0.2).
        bias: learn a shift; language models go without.
        channels_last: features on the last axis, or on the second: ``(N, dim, *space)``.

    A language model also multiplies its embedding by a learned scalar that starts at sqrt(width).

    Transformers without Normalization (Zhu, Chen, He, LeCun, Liu, 2025), arXiv 2503.10622.
    """

    def __init__(self, dim: int, *, alpha: float = 0.5, bias: bool = True, channels_last: bool = True):
        super().__init__(dim, bias=bias, channels_last=channels_last)
        self.alpha = scalar(self, "alpha", alpha)

    def forward(self, x: Tensor) -> Tensor:
        """Squash ``x``."""
        return ops.dyt(x, self.alpha, self.weight, self.bias, channels_last=self.channels_last, owner=self)
