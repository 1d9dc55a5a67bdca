"""adaLN-Zero whose linear layer is shared by all blocks."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.activation.conditional._modulation import modulate
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "adaln-single",
    paper="PixArt-alpha: Fast Training of Diffusion Transformer (Chen et al., 2023), arXiv 2310.00426",
    evidence="equations",
    shape="N L C",
    over="C",
    inputs={"shared": "N 6C"},
    replaces=("adaln-zero",),
    aliases={
        "ada-norm-single": {},
        "ChromaAdaLayerNormZeroPruned": {"table": False},
        "ChromaAdaLayerNormZeroSinglePruned": {"table": False, "sublayers": 1},
    },
    provenance="diffusers' equations in float64, with its table and pieces written out",
)
class AdaLNSingle(Norm):
    """Give each token zero mean and unit variance, then a gain, a shift and a gate that all blocks share but a table.

    For diffusion transformers of many blocks, in which the linear layers of adaLN-Zero weigh much: one for the model, a
    table for each block, and a quarter fewer parameters (PixArt-alpha). All blocks see the condition alike, up to their
    table's constant; where each is to read it in its own way, take ``adaln-zero``.

    With h the layer norm of x without gain and shift,

        [shift, scale, gate, shift2, scale2, gate2] = table + shared
        y = h * (1 + scale) + shift

    The block adds ``gate * attention(y)``, and then ``gate2 * mlp(h' * (1 + scale2) + shift2)`` with h' a second layer
    norm. ``shared`` is ``linear(silu(embedding of the time))``, made once for all blocks: no SiLU is taken here.

    Args:
        dim: C.
        eps: added to the biased variance under the root.
        table: learn a table; Chroma's blocks have none, and one network makes the vectors of all of them.
        sublayers: 2, or 1 for shift, scale and gate alone, as of a block whose sublayers work side by side.

    ``norm(x, shared)``: x (N, L, C), shared (N, 6 C) -> (y, gate, shift2, scale2, gate2), with one sublayer shared
    (N, 3 C) -> (y, gate); all but y are (N, C). The table starts as normal numbers over sqrt(C), not at zero: no block
    is the identity at the start.

    PixArt-alpha: Fast Training of Diffusion Transformer for Photorealistic Text-to-Image Synthesis (Chen et al., ICLR
    2024), arXiv 2310.00426.
    """

    table: nn.Parameter | None
    pieces = 6  # pickles of before there were others have none

    def __init__(self, dim: int, *, eps: float = 1e-6, table: bool = True, sublayers: int = 2):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.pieces = 3 * check.size(self, "sublayers", sublayers, 1, 2)
        self.rule = ops.Row(center=True, eps=check.eps(self, eps))
        numbers = nn.Parameter(torch.randn(self.pieces, dim) / math.sqrt(dim)) if table else None
        self.register_parameter("table", numbers)

    def forward(self, x: Tensor, shared: Tensor) -> tuple[Tensor, ...]:
        """Normalize ``x``, modulate it with the table and ``shared``, and return what the block needs further."""
        check.values(self, "x", x, (None, None, self.dim), x)
        check.values(self, "shared", shared, (x.shape[0], self.pieces * self.dim), x)
        h = ops.row_norm(accurate(x), rule=self.rule)
        vectors = shared.to(h.dtype).unflatten(-1, (self.pieces, self.dim))
        vectors = vectors if self.table is None else self.table.to(h.dtype) + vectors
        shift, scale, *rest = vectors.unbind(1)
        return (modulate(h, scale, shift).to(x.dtype), *(part.to(x.dtype) for part in rest))
