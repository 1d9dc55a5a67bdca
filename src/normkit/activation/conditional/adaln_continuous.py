"""The last norm of many diffusion transformers."""

from __future__ import annotations

from torch import Tensor

from normkit import check, ops
from normkit.activation.conditional._map import BY_ROWS
from normkit.activation.conditional._modulation import ModulatedNorm, modulate, of_tokens
from normkit.catalog import method


@method(
    "adaln-continuous",
    paper="Scalable Diffusion Models with Transformers (Peebles, Xie, 2022), arXiv 2212.09748, as in diffusers",
    evidence="library",
    shape="N L C",
    over="C",
    inputs={"condition": "N condition_features"},
    example={"condition_features": 6},
    replaces=("adaptive-layernorm", "layernorm"),
    called={
        "diffusers' AdaLayerNormContinuous": "embedding_dim=dim conditioning_embedding_dim=condition_features "
        "elementwise_affine=affine eps bias",
    },
    exempt=BY_ROWS,
)
class AdaLNContinuous(ModulatedNorm):
    """Normalize each token by layer norm or RMS norm, then scale and shift it by numbers made from a condition.

    For the last layer of a diffusion transformer in the order of diffusers, so that checkpoints such as Flux's and
    Stable Diffusion 3's load. Inside a block, whose branches need gates as well, take ``adaln-zero`` or
    ``adaln-single``.

    In front of the last layer of Flux and Stable Diffusion 3, which have ``affine=False`` and eps 1e-6:

        [scale, shift] = modulation(silu(condition)),        y = norm(x) * (1 + scale) + shift

    The scale comes before the shift: ``adaptive-layernorm``, the other way round, is the same function after its halves
    are swapped.

    Args:
        dim: C.
        condition_features: size of the condition, C by default.
        norm: ``"layernorm"`` or ``"rmsnorm"``.
        affine: learn the norm's own ``weight``, and for a layer norm its ``bias``.
        bias: of the norm and of ``modulation``, both; without effect on the norm when ``affine`` is off.
        eps: added under the root.
        activation: take the SiLU of the condition; CogView 4 and GLM-Image do not.
        vectors: ``"both"``, or ``"scale"`` alone (Lumina 2, Mochi) or ``"shift"`` alone (HunyuanDiT).
        scale_first: ``modulation`` gives the scale before the shift; of MiniMax-H3 the shift comes first.

    Input x ``(N, L, C)`` and condition ``(N, condition_features)``, or ``(N, L, condition_features)`` for one of each
    token (Flux 3). ``modulation`` starts as linear layers of torch do.

    Scalable Diffusion Models with Transformers (Peebles, Xie, 2022), arXiv 2212.09748; the order is diffusers'.
    """

    scale_first = True  # pickles of before it came have none

    def __init__(
        self,
        dim: int,
        *,
        condition_features: int | None = None,
        norm: str = "layernorm",
        affine: bool = True,
        bias: bool = True,
        eps: float = 1e-5,
        activation: bool = True,
        vectors: str = "both",
        scale_first: bool = True,
    ):
        center = check.choice(self, "norm", norm, ("layernorm", "rmsnorm")) == "layernorm"
        rule = ops.Row(center=center, eps=check.eps(self, eps))
        self.vectors = check.choice(self, "vectors", vectors, ("both", "scale", "shift"))
        pieces = 2 if vectors == "both" else 1
        shift = affine and bias and center
        super().__init__(dim, pieces, rule, condition_features, gain=affine, shift=shift, bias=bias)
        self.activation, self.scale_first = bool(activation), bool(scale_first)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Normalize ``x`` and modulate it with ``condition``."""
        h = self._normalize(x)
        made = self._vectors(condition, x, self.activation, each=True)
        if self.vectors == "both":
            scale, shift = made if self.scale_first else made[::-1]
            return modulate(h, scale, shift).to(x.dtype)
        vectors = of_tokens(made[0])
        return (h * (1 + vectors) if self.vectors == "scale" else h + vectors).to(x.dtype)
