"""adaLN-Zero for two streams of tokens."""

from __future__ import annotations

from torch import Tensor

from normkit import check, ops
from normkit.activation.conditional._map import BY_ROWS
from normkit.activation.conditional._modulation import ModulatedNorm, modulate
from normkit.catalog import method


@method(
    "adaln-zero-two-stream",
    paper="CogVideoX: Text-to-Video Diffusion Models with An Expert Transformer (Yang et al., 2024), arXiv 2408.06072",
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
        "diffusers' CogView3PlusAdaLayerNormZeroTextImage": "embedding_dim=condition_features dim",
    },
    exempt=BY_ROWS,
)
class AdaLNZeroTwoStream(ModulatedNorm):
    """Layer-normalize the tokens of two streams alike, then give each stream a gain, a shift and a gate of its own.

    For transformers that join video and text in one attention, whose scales differ (CogVideoX). With one stream take
    ``adaln-zero``.

    With norm the layer norm of both, own gain and shift included,

        [shift, scale, gate, context shift, context scale, context gate] = modulation(silu(condition))
        y = norm(x) * (1 + scale) + shift,        and so the context with its own

    For both sublayers at once (CogView 3 and 4, GLM-Image) each stream has a second shift, scale and gate, whose use is
    the block's, as in ``adaln-zero``.

    Args:
        dim: C.
        condition_features: size of the condition, C by default.
        affine: learn ``weight`` and ``bias`` of the norm.
        eps: added to the biased variance under the root.
        sublayers: 1 for a block that has two of these, for attention and MLP; 2 for the vectors of both at once.
        interleaved: ``modulation`` gives each vector of x and then that of the context, not all of x first.
        activation: take the SiLU of the condition; CogView 4 and GLM-Image do not.

    ``norm(x, context, condition)``: x (N, L, C), context (N, T, C), condition (N, condition_features) -> (y, context,
    gate, context gate), with two sublayers (y, context, gate, shift2, scale2, gate2, and these four of the context);
    the vectors are (N, C), and all are of the type of x. ``modulation`` starts as linear layers of torch do.

    CogVideoX: Text-to-Video Diffusion Models with An Expert Transformer (Yang et al., 2024), arXiv 2408.06072.

    Differs from diffusers in: the gates have no token axis; with two sublayers the context follows y.
    """

    interleaved, activation = False, True  # pickles of before they came have none

    def __init__(
        self,
        dim: int,
        *,
        condition_features: int | None = None,
        affine: bool = True,
        eps: float = 1e-5,
        sublayers: int = 1,
        interleaved: bool = False,
        activation: bool = True,
    ):
        rule = ops.Row(center=True, eps=check.eps(self, eps))
        pieces = 6 * check.size(self, "sublayers", sublayers, 1, 2)
        super().__init__(dim, pieces, rule, condition_features, gain=affine, shift=affine)
        self.interleaved, self.activation = bool(interleaved), bool(activation)

    def forward(self, x: Tensor, context: Tensor, condition: Tensor) -> tuple[Tensor, ...]:
        """Normalize ``x`` and ``context``, modulate each with ``condition``, and return their gates."""
        h, other = self._normalize(x), self._normalize(context, "context", x.shape[0])
        vectors, half = self._vectors(condition, x, self.activation), self.pieces // 2
        first, second = (vectors[::2], vectors[1::2]) if self.interleaved else (vectors[:half], vectors[half:])
        shift, scale, *rest = first
        context_shift, context_scale, *context_rest = second
        y, context_y = modulate(h, scale, shift), modulate(other, context_scale, context_shift)
        return tuple(part.to(x.dtype) for part in (y, context_y, *rest, *context_rest))
