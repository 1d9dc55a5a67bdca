"""RMSNorm with a scale and gates from a condition: of Lumina 2."""

from __future__ import annotations

from torch import Tensor

from normkit import check, ops
from normkit.activation.conditional._map import BY_ROWS
from normkit.activation.conditional._modulation import ModulatedNorm
from normkit.catalog import method

MOST = 1024  # features of a condition


@method(
    "adaptive-rmsnorm-zero",
    paper="Lumina-Image 2.0: A Unified and Efficient Image Generative Framework (Qin et al., 2025), arXiv 2503.21758",
    evidence="library",
    shape="N L C",
    over="C",
    inputs={"condition": "N condition_features"},
    example={"condition_features": 6},
    replaces=("adaln-zero",),
    aliases={"LuminaRMSNormZero": {}, "MochiRMSNormZero": {"affine": False}},
    exempt=BY_ROWS,
)
class AdaptiveRMSNormZero(ModulatedNorm):
    """Divide each token by its root mean square, scale it by numbers made from a condition, and make gates.

    For diffusion transformers that also normalize what their branches write, such as Lumina 2's, to load or to rebuild.
    Its gates do not start at 0, so a block is not the identity at first. Where it should be, take ``adaln-zero``.

    The norm of a block of Lumina 2, which shifts nothing:

        [scale, gate, scale2, gate2] = modulation(silu(condition))
        y = x / sqrt(mean(x²) + eps) * weight * (1 + scale)

    The block adds ``tanh(gate) * n(attention(y))``, and then ``tanh(gate2) * n(mlp(n(x) * (1 + scale2)))``, n being
    RMSNorms of its own: the tanh is the block's. ``modulation`` starts as linear layers of torch do.

    Args:
        dim: C.
        condition_features: size of the condition, C by default, but no more than 1024.
        eps: added to the mean square under the root.
        affine: learn ``weight``; Mochi does not.

    ``norm(x, condition)``: x (N, L, C), condition (N, condition_features) -> (y, gate, scale2, gate2); all but y are
    (N, C).

    Lumina-Image 2.0: A Unified and Efficient Image Generative Framework (Qin et al., 2025), arXiv 2503.21758, as in
    diffusers.
    """

    def __init__(self, dim: int, *, condition_features: int | None = None, eps: float = 1e-5, affine: bool = True):
        features = min(check.size(self, "dim", dim), MOST) if condition_features is None else condition_features
        super().__init__(dim, 4, ops.Row(eps=check.eps(self, eps)), features, gain=affine)

    def forward(self, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Normalize ``x``, scale it by ``condition``, and return what the block needs further."""
        h = self._normalize(x)
        scale, gate, scale2, gate2 = self._vectors(condition, x)
        y = h * (1 + scale.unsqueeze(1))
        return y.to(x.dtype), gate.to(x.dtype), scale2.to(x.dtype), gate2.to(x.dtype)
