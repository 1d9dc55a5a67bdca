"""adaLN-Zero for two streams of tokens."""

from __future__ import annotations

from torch import Tensor

from normkit import check, ops
from normkit.activation.conditional._modulation import ModulatedNorm, modulate
from normkit.catalog import method


@method(
    "adaln-zero-two-stream",
    paper="CogVideoX: Text-to-Video Diffusion Models with An Expert Transformer (2024), arXiv 2408.06072",
    evidence="library",
    shape="N L C",
    over="C",
    inputs={"context": "N T C", "condition": "N condition_features"},
    example={"condition_features": 6},
    replaces=("adaln-zero",),
    aliases=("CogVideoXLayerNormZero", "expert-adaln"),
    called={
        "diffusers' CogVideoXLayerNormZero": "conditioning_dim=condition_features embedding_dim=dim "
        "elementwise_affine=affine eps",
    },
    exempt={
        "batches rows": "the order of sums in a linear layer's product follows the number of its rows",
        "batches order": "the order of sums in a linear layer's product follows the number of its rows",
    },
)
class AdaLNZeroTwoStream(ModulatedNorm):
    """Layer-normalize the tokens of two streams alike, then give each stream a gain, a shift and a gate of its own.

    For transformers that join video and text in one attention, whose scales differ (CogVideoX). With one stream take
    ``adaln-zero``.

    With norm the layer norm of both, own gain and shift included,

        [shift, scale, gate, context shift, context scale, context gate] = modulation(silu(condition))
        y = norm(x) * (1 + scale) + shift,        and so the context with its own

    Args:
        dim: C.
        condition_features: size of the condition, C by default.
        affine: learn ``weight`` and ``bias`` of the norm.
        eps: added to the biased variance under the root.

    ``norm(x, context, condition)``: x (N, L, C), context (N, T, C), condition (N, condition_features) -> (y, context,
    gate, context gate); the gates are (N, C), and all are of the type of x. A block has two of these, for attention and
    MLP. ``modulation`` starts as linear layers of torch do.

    CogVideoX: Text-to-Video Diffusion Models with An Expert Transformer (Yang et al., 2024), arXiv 2408.06072.

    Differs from diffusers in: the gates have no token axis.
    """

    def __init__(self, dim: int, *, condition_features: int | None = None, affine: bool = True, eps: float = 1e-5):
        rule = ops.Row(center=True, eps=check.eps(self, eps))
        super().__init__(dim, 6, rule, condition_features, gain=affine, shift=affine)

    def forward(self, x: Tensor, context: Tensor, condition: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Normalize ``x`` and ``context``, modulate each with ``condition``, and return their gates."""
        h, other = self._normalize(x), self._normalize(context, "context", x.shape[0])
        shift, scale, gate, context_shift, context_scale, context_gate = self._vectors(condition, x)
        y = modulate(h, scale, shift).to(x.dtype)
        context_y = modulate(other, context_scale, context_shift).to(x.dtype)
        return y, context_y, gate.to(x.dtype), context_gate.to(x.dtype)
