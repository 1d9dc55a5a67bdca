"""The last norm of many diffusion transformers."""

from __future__ import annotations

from torch import Tensor

from normkit import check, ops
from normkit.activation.conditional._modulation import ModulatedNorm, modulate
from normkit.catalog import method


@method(
    "adaln-continuous",
    paper="Scalable Diffusion Models with Transformers (2022), arXiv 2212.09748, as in diffusers",
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
    exempt={
        "batches rows": "the order of sums in a linear layer's product follows the number of its rows",
        "batches order": "the order of sums in a linear layer's product follows the number of its rows",
    },
)
class AdaLNContinuous(ModulatedNorm):
    """Normalize each token by layer norm or RMS norm, then scale and shift it by numbers made from a condition.

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

    Input x ``(N, L, C)`` and condition ``(N, condition_features)``. ``modulation`` starts as linear layers of torch do.

    Scalable Diffusion Models with Transformers (Peebles, Xie, 2022), arXiv 2212.09748; the order is diffusers'.
    """

    def __init__(
        self,
        dim: int,
        *,
        condition_features: int | None = None,
        norm: str = "layernorm",
        affine: bool = True,
        bias: bool = True,
        eps: float = 1e-5,
    ):
        center = check.choice(self, "norm", norm, ("layernorm", "rmsnorm")) == "layernorm"
        rule = ops.Row(center=center, eps=check.eps(self, eps))
        super().__init__(dim, 2, rule, condition_features, gain=affine, shift=affine and bias and center, bias=bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Normalize ``x`` and modulate it with ``condition``."""
        h = self._normalize(x)
        scale, shift = self._vectors(condition, x)
        return modulate(h, scale, shift).to(x.dtype)
