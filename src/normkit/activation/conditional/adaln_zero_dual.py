"""adaLN-Zero for a block with two attentions."""

from __future__ import annotations

from torch import Tensor

from normkit import check, ops
from normkit.activation.conditional._map import BY_ROWS
from normkit.activation.conditional._modulation import ModulatedNorm, modulate
from normkit.catalog import method


@method(
    "adaln-zero-dual",
    paper="Scalable Diffusion Models with Transformers (Peebles, Xie, 2022), arXiv 2212.09748, as in Stable "
    "Diffusion 3.5",
    evidence="library",
    shape="N L C",
    over="C",
    inputs={"condition": "N C"},
    replaces=("adaln-zero",),
    aliases=("SD35AdaLayerNormZeroX",),
    called={"diffusers' SD35AdaLayerNormZeroX": "embedding_dim=dim"},
    exempt=BY_ROWS,
)
class AdaLNZeroDual(ModulatedNorm):
    """Give each token zero mean and unit variance, then two gains and shifts, and gates, that start at nothing.

    For blocks whose image tokens attend to the text and, beside it, to themselves (Stable Diffusion 3.5 medium). Where
    image tokens attend once, take ``adaln-zero``.

    With h the layer norm of x without gain and shift,

        [shift, scale, gate, shift2, scale2, gate2, shift3, scale3, gate3] = modulation(silu(condition))
        y = h * (1 + scale) + shift,        y3 = h * (1 + scale3) + shift3

    The block adds ``gate * attention(y, context) + gate3 * attention3(y3)``, and then ``gate2 * mlp(h' * (1 + scale2) +
    shift2)`` with h' a second layer norm. ``modulation`` is a linear layer that starts at zero: gates of 0 make the
    block the identity.

    Args:
        dim: C, also the size of the condition.
        eps: added to the biased variance under the root.

    ``norm(x, condition)``: x (N, L, C), condition (N, C) -> (y, gate, shift2, scale2, gate2, y3, gate3); y and y3 are
    (N, L, C), the others (N, C).

    Scalable Diffusion Models with Transformers (Peebles, Xie, 2022), arXiv 2212.09748, as in diffusers.

    Differs from diffusers in: ``modulation`` starts at zero by itself.
    """

    def __init__(self, dim: int, *, eps: float = 1e-6):
        super().__init__(dim, 9, ops.Row(center=True, eps=check.eps(self, eps)), zero=True)

    def forward(self, x: Tensor, condition: Tensor) -> tuple[Tensor, ...]:
        """Normalize ``x``, modulate it twice with ``condition``, and return what the block needs further."""
        h = self._normalize(x)
        shift, scale, gate, shift2, scale2, gate2, shift3, scale3, gate3 = self._vectors(condition, x)
        y, y3 = modulate(h, scale, shift), modulate(h, scale3, shift3)
        return tuple(part.to(x.dtype) for part in (y, gate, shift2, scale2, gate2, y3, gate3))
