"""adaLN-LoRA: adaLN-Zero whose vectors two thin matrices make."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check, ops
from normkit.activation.conditional._map import BY_ROWS, run
from normkit.activation.conditional._modulation import modulate
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "adaln-lora",
    paper="Photorealistic Video Generation with Diffusion Models (Gupta et al., 2023), arXiv 2312.06662",
    evidence="library",
    shape="N L C",
    over="C",
    inputs={"condition": "N condition_features", "shared?": "N 3C"},
    example={"condition_features": 6, "rank": 3},
    replaces=("adaln-zero",),
    aliases={"CosmosAdaLayerNormZero": {}, "CosmosAdaLayerNorm": {"gated": False}},
    called={"diffusers' CosmosAdaLayerNormZero": "in_features=dim hidden_features=rank"},
    provenance="diffusers' modules of Cosmos",
    exempt=BY_ROWS,
)
class AdaLNLoRA(Norm):
    """Give each token zero mean and unit variance, then a gain, a shift and a gate made by two thin matrices.

    For large diffusion transformers, where a matrix of adaLN-Zero in every block is dear (W.A.L.T, Cosmos). All blocks
    share the vectors of one such matrix, and each adds its own of low rank. With h the layer norm of x,

        [shift, scale, gate] = up(down(silu(condition))) + shared
        y = h * (1 + scale) + shift

    The block adds ``gate * sublayer(y)``; each of its sublayers has one of these.

    Args:
        dim: C.
        condition_features: size of the condition, C by default.
        rank: rows of ``down``.
        gated: make the gate too; the last norm of a model has none.
        eps: added to the biased variance under the root.

    ``norm(x, condition, shared)``: x (N, L, C), condition (N, condition_features), shared (N, 3 C) -> (y, gate). Shared
    may be left out. Without a gate (y,) is returned, and shared's part for it is not used. The gate is (N, C).
    Condition and shared of each token, (N, L, condition_features) and (N, L, 3 C), give a gate of each, (N, L, C).

    Photorealistic Video Generation with Diffusion Models (Gupta et al., 2023), arXiv 2312.06662, in the form of Cosmos,
    as in diffusers.

    Differs from the paper in: each sublayer makes vectors of its own. From diffusers in: a gate of a sample has no
    token axis, and without a gate a tuple of one is returned.
    """

    def __init__(
        self,
        dim: int,
        *,
        condition_features: int | None = None,
        rank: int = 256,
        gated: bool = True,
        eps: float = 1e-6,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        condition_features = dim if condition_features is None else condition_features
        self.condition_features = check.size(self, "condition_features", condition_features)
        self.rank, self.pieces = check.size(self, "rank", rank), 3 if gated else 2
        self.rule = ops.Row(center=True, eps=check.eps(self, eps))
        self.down = nn.Linear(condition_features, rank, bias=False)
        self.up = nn.Linear(rank, self.pieces * dim, bias=False)

    def forward(self, x: Tensor, condition: Tensor, shared: Tensor | None = None) -> tuple[Tensor, ...]:
        """Normalize ``x``, modulate it with ``condition`` and ``shared``, and return the gate besides."""
        check.values(self, "x", x, (None, None, self.dim), x)
        h = ops.row_norm(accurate(x), rule=self.rule)
        shift, scale, *gate = self._vectors(condition, shared, x).to(h.dtype).chunk(self.pieces, -1)
        return (modulate(h, scale, shift).to(x.dtype), *(part.to(x.dtype) for part in gate))

    def _vectors(self, condition: Tensor, shared: Tensor | None, x: Tensor) -> Tensor:
        tokens = isinstance(condition, Tensor) and condition.dim() == 3
        samples = x.shape[: 1 + tokens]
        check.values(self, "condition", condition, (*samples, self.condition_features), x)
        vectors = run(self.up, run(self.down, F.silu(condition)))
        if shared is None:
            return vectors
        check.values(self, "shared", shared, (*samples, 3 * self.dim), x)
        return accurate(vectors) + accurate(shared[..., : self.pieces * self.dim])
