"""Derf, dynamic erf, and the other bounded functions of its paper."""

from __future__ import annotations

from torch import Tensor

from normkit import check, ops
from normkit.activation.token._pointwise import PointwiseNorm, scalar
from normkit.catalog import method
from normkit.ops import pointwise


@method(
    "derf",
    paper="Stronger Normalization-Free Transformers (Chen, Lu, Zhu, Sun, Liu, 2025), arXiv 2512.10938",
    shape="... C",
    over="",
    aliases=("dynamic-erf",),
    replaces=("layernorm", "rmsnorm", "dyt"),
)
class Derf(PointwiseNorm):
    """Squash every entry with an error function of learned slope and shift instead of normalizing.

    For transformers, in the place of every LayerNorm or RMSNorm, where no statistic over the features is wanted. All
    norms go, not some. The starts of alpha matter; ``dyt`` is the same with tanh and without the shift inside.

    With u = alpha * x + shift,

        y = f(u) * weight + bias

    Args:
        dim: number of features.
        alpha: where the layer's one slope starts; GPT-2 takes 1.0, set apart for attention, MLP and final norms.
        shift: where the layer's one shift inside f starts.
        function: ``"erf"`` (the method), ``"tanh"``, ``"isru"``: u / sqrt(u² + 1), ``"arctan"``: 2/pi atan(u),
            ``"expsign"``: sign(u) (1 - exp(-|u|)), ``"satursin"``: sin(clip(u, -pi/2, pi/2)).
        bias: learn a shift a feature.
        channels_last: features on the last axis, or on the second: ``(N, dim, *space)``.

    A language model also multiplies its embedding by a learned scalar that starts at sqrt(width).

    Stronger Normalization-Free Transformers (Chen, Lu, Zhu, Sun, Liu, 2025), arXiv 2512.10938.

    The derivative of ``"expsign"`` at u = 0 exactly is 0 as autograd has it; the limit is 1.
    """

    def __init__(
        self,
        dim: int,
        *,
        alpha: float = 0.5,
        shift: float = 0.0,
        function: str = "erf",
        bias: bool = True,
        channels_last: bool = True,
    ):
        super().__init__(dim, bias=bias, channels_last=channels_last)
        self.function = check.choice(self, "function", function, tuple(pointwise.FUNCTIONS))
        self.alpha = scalar(self, "alpha", alpha)
        self.shift = scalar(self, "shift", shift)

    def forward(self, x: Tensor) -> Tensor:
        """Squash ``x``."""
        tensors = (x, self.alpha, self.shift, self.weight, self.bias)
        return ops.derf(*tensors, function=self.function, channels_last=self.channels_last, owner=self)
