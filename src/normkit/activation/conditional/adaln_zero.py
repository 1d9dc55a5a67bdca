"""adaLN-Zero: a layer norm, and a gate for the sublayer, from a condition."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check, ops, statistics
from normkit.activation.conditional._map import BY_ROWS, run
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "adaln-zero",
    paper="Scalable Diffusion Models with Transformers (Peebles, Xie, 2022), arXiv 2212.09748",
    evidence="equations",
    shape="N L C",
    over="C",
    inputs={"condition": "N condition_features"},
    example={"condition_features": 6},
    replaces=("adaptive-layernorm", "layernorm"),
    aliases={"AdaLayerNormZero": {}, "AdaLayerNormZeroSingle": {"sublayers": 1}},
    called={"diffusers' AdaLayerNormZero": "embedding_dim=dim"},
    provenance="diffusers' equations in float64 in tests/activation/test_conditional_neighbours.py",
    exempt=BY_ROWS,
)
class AdaLNZero(Norm):
    """Give each token zero mean and unit variance, then a gain, a shift and a gate that start at nothing.

    For the blocks of a diffusion transformer that a vector conditions, such as the time and the class. The last layer,
    which has no branch to gate, takes ``adaptive-layernorm``. Where a linear layer in each block is too many
    parameters, take ``adaln-single``.

    The norm of a block of DiT, and what it needs besides. With h the layer norm of x without gain and shift,

        [shift, scale, gate, shift2, scale2, gate2] = modulation(silu(condition))
        y = h * (1 + scale) + shift

    The block adds ``gate * attention(y)``, and then ``gate2 * mlp(h' * (1 + scale2) + shift2)`` with h' a second layer
    norm. ``modulation`` is a linear layer that starts at zero: gates of 0 make the block the identity.

    Args:
        dim: C.
        condition_features: size of the condition, C by default.
        sublayers: 2 for a block of two sublayers; 1 for shift, scale and gate alone, as of a block whose sublayers
            work side by side.
        eps: added to the biased variance under the root.

    ``norm(x, condition)``: x (N, L, C), condition (N, condition_features) -> (y, gate, shift2, scale2, gate2), with one
    sublayer (y, gate); all but y are (N, C).

    Scalable Diffusion Models with Transformers (Peebles, Xie, 2022), arXiv 2212.09748; the order is diffusers'.
    """

    def __init__(self, dim: int, *, condition_features: int | None = None, sublayers: int = 2, eps: float = 1e-6):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        condition_features = dim if condition_features is None else condition_features
        self.condition_features = check.size(self, "condition_features", condition_features)
        self.sublayers = check.size(self, "sublayers", sublayers, 1, 2)
        self.rule = ops.Row(center=True, eps=check.eps(self, eps))
        self.modulation = nn.Linear(condition_features, 3 * sublayers * dim)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x: Tensor, condition: Tensor) -> tuple[Tensor, ...]:
        """Normalize ``x``, modulate it with ``condition``, and return what the block needs further."""
        check.values(self, "x", x, (None, None, self.dim), x)
        check.values(self, "condition", condition, (x.shape[0], self.condition_features), x)
        h = ops.row_norm(statistics.accurate(x), rule=self.rule)
        vectors = run(self.modulation, F.silu(condition)).to(h.dtype)
        shift, scale, *rest = vectors.chunk(3 * self.sublayers, dim=-1)
        y = torch.addcmul(shift.unsqueeze(1), h, 1 + scale.unsqueeze(1))
        return (y.to(x.dtype), *(part.to(x.dtype) for part in rest))
