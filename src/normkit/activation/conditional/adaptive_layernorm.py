"""adaLN: layer normalization whose gain and shift come from a condition."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.conditional._map import BY_ROWS, run
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "adaptive-layernorm",
    paper="Scalable Diffusion Models with Transformers (Peebles, Xie, 2022), arXiv 2212.09748",
    shape="N L C",
    over="C",
    inputs={"condition": "N condition_features"},
    example={"condition_features": 6},
    aliases={
        "adaln": {},
        "ada-layernorm": {},
        "AdaLayerNormContinuous": {"scale_first": True, "affine": True, "eps": 1e-5},
    },
    called={
        "diffusers' AdaLayerNormContinuous": "embedding_dim=dim conditioning_embedding_dim=condition_features "
        "elementwise_affine=affine eps",
    },
    invariant=("shift", "scale"),
    exempt=BY_ROWS,
)
class AdaptiveLayerNorm(Norm):
    """Give each token zero mean and unit variance, then a gain and a shift made from the sample's condition.

    For a transformer's last layer, or any layer norm that a vector conditions and no gate follows. In a block with
    residual branches ``adaln-zero`` brings the gates; ``adaln-continuous`` has the order of diffusers.

    The adaLN of DiT, in front of its last layer. With h the layer norm of x without gain and shift,

        [shift, scale] = modulation(silu(condition)),        y = h * (1 + scale) + shift

    the same for all tokens of a sample. ``modulation`` is a linear layer that starts at zero, so that the module starts
    as a plain layer norm. The gates of adaLN-Zero belong to the block, not to the norm.

    Args:
        dim: C.
        condition_features: size of the condition, C by default.
        eps: added to the biased variance under the root.
        scale_first: ``modulation`` gives the scale before the shift, as in diffusers' AdaLayerNormContinuous.
        affine: learn ``weight`` and ``bias`` of h as well, as there.

    Input x ``(N, L, C)`` and condition ``(N, condition_features)``.

    Scalable Diffusion Models with Transformers (Peebles, Xie, 2022), arXiv 2212.09748.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        dim: int,
        *,
        condition_features: int | None = None,
        eps: float = 1e-6,
        scale_first: bool = False,
        affine: bool = False,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        condition_features = dim if condition_features is None else condition_features
        self.condition_features = check.size(self, "condition_features", condition_features)
        self.rule = ops.Row(center=True, eps=check.eps(self, eps))
        self.scale_first = bool(scale_first)
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(dim)) if affine else None)
        self.modulation = nn.Linear(condition_features, 2 * dim)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Normalize ``x`` and modulate it with ``condition``."""
        check.values(self, "x", x, (None, None, self.dim), x)
        check.values(self, "condition", condition, (x.shape[0], self.condition_features), x)
        h = ops.row_norm(statistics.accurate(x), self.weight, self.bias, self.rule)
        first, second = run(self.modulation, F.silu(condition)).unsqueeze(1).chunk(2, dim=-1)
        shift, scale = (second, first) if self.scale_first else (first, second)
        return torch.addcmul(shift.to(h.dtype), h, 1 + scale.to(h.dtype)).to(x.dtype)
