"""The adaptive layer norm of AlphaFold 3."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.activation.conditional._map import run
from normkit.activation.conditional._modulation import of_tokens
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "adaln-alphafold3",
    paper="Accurate structure prediction of biomolecular interactions with AlphaFold 3 (Abramson et al., 2024), "
    "doi 10.1038/s41586-024-07487-w, algorithm 26 of the supplement",
    evidence="library",
    shape="N L C",
    over="C",
    inputs={"condition": "N L condition_features"},
    example={"condition_features": 6},
    replaces=("adaptive-layernorm", "layernorm"),
    aliases={
        "EsmFold2AdaptiveLayerNorm": {},
        "RFD4ProteinaAdaptiveNorm": {"condition_bias": True},
    },
    provenance="diffusers' RFD4ProteinaAdaptiveNorm and transformers' EsmFold2AdaptiveLayerNorm",
    exempt={
        "batches rows": "the order of sums in a linear layer's product follows the number of its rows",
        "batches gains": "the order of sums in a linear layer's product follows the number of threads",
    },
)
class AdaLNAlphaFold3(Norm):
    """Normalize each token and its condition, then gate the token and shift it by numbers made from the condition.

    For models of proteins, whose condition differs by token. With h the layer norm of x without gain and shift,

        s = norm(condition) * weight
        y = h * sigmoid(gate(s)) + shift(s)

    The gain lies between 0 and 1, where that of ``adaptive-layernorm`` is 1 + scale; ``gate`` and ``shift`` are linear
    layers, the second without bias.

    Args:
        dim: C.
        condition_features: size of the condition, C by default.
        norm: ``"layernorm"`` or ``"rmsnorm"``, of tokens and conditions.
        condition_bias: learn ``bias``, added to s; only of a layer norm.
        eps: added under the root, in both norms.

    Input x ``(N, L, C)`` and condition ``(N, L, condition_features)``, or ``(N, condition_features)`` for one of each
    sample. Linear layers start as torch's do.

    Accurate structure prediction of biomolecular interactions with AlphaFold 3 (Abramson et al., Nature, 2024).
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        dim: int,
        *,
        condition_features: int | None = None,
        norm: str = "layernorm",
        condition_bias: bool = False,
        eps: float = 1e-5,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        features = dim if condition_features is None else condition_features
        self.condition_features = check.size(self, "condition_features", features)
        center = check.choice(self, "norm", norm, ("layernorm", "rmsnorm")) == "layernorm"
        self.rule = ops.Row(center=center, eps=check.eps(self, eps))
        self.weight = nn.Parameter(torch.ones(features))
        self.register_parameter("bias", nn.Parameter(torch.zeros(features)) if condition_bias and center else None)
        self.gate, self.shift = nn.Linear(features, dim), nn.Linear(features, dim, bias=False)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Normalize ``x``, gate it and shift it by ``condition``."""
        check.values(self, "x", x, (None, None, self.dim), x)
        sample = isinstance(condition, Tensor) and condition.dim() == 2
        check.values(self, "condition", condition, (*x.shape[: 2 - sample], self.condition_features), x)
        s = ops.row_norm(condition, self.weight, self.bias, self.rule)
        gate, shift = (of_tokens(accurate(run(layer, s))) for layer in (self.gate, self.shift))
        h = ops.row_norm(accurate(x), rule=self.rule)
        return torch.addcmul(shift.to(h.dtype), h, gate.to(h.dtype).sigmoid()).to(x.dtype)
