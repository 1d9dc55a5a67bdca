"""The last norm of diffusion transformers with adaLN-single."""

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
    "adaln-single-last",
    paper="PixArt-alpha: Fast Training of Diffusion Transformer (Chen et al., 2023), arXiv 2310.00426",
    evidence="library",
    shape="N L C",
    over="C",
    inputs={"time": "N C"},
    replaces=("adaln-continuous", "adaptive-layernorm"),
    called={
        "diffusers' HeliosOutputNorm": "dim eps",
        "diffusers' SanaModulatedNorm": "dim eps elementwise_affine=affine",
    },
    provenance="diffusers' modules of Helios, Sana and Chroma",
)
class AdaLNSingleLast(Norm):
    """Give each token zero mean and unit variance, then a gain and a shift: a table's rows, plus the time.

    In front of the last layer of PixArt-alpha, Sana, Wan and Helios. It needs no matrix, since both rows of the table
    get the same vector, the embedding of the time. Within the blocks take ``adaln-single``; where the condition is more
    than a time, ``adaln-continuous``.


        shift = table[0] + time,        scale = table[1] + time
        y = norm(x) * (1 + scale) + shift

    Args:
        dim: C.
        table: learn the table; Chroma has none, and is handed the shift and the scale, one behind the other.
        affine: learn ``weight`` and ``bias`` of the norm.
        eps: added to the biased variance under the root.

    ``norm(x, time)``: x (N, L, C). The time of a sample is (N, C) for both rows, or (N, 2 C) for one after the other;
    that of each token has an axis more, as (N, L, C). The table starts as normal numbers over sqrt(C).

    PixArt-alpha: Fast Training of Diffusion Transformer for Photorealistic Text-to-Image Synthesis (Chen et al., ICLR
    2024), arXiv 2310.00426.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    table: nn.Parameter | None

    def __init__(self, dim: int, *, table: bool = True, affine: bool = False, eps: float = 1e-6):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.rule = ops.Row(center=True, eps=check.eps(self, eps))
        self.register_parameter("table", nn.Parameter(torch.randn(2, dim) / math.sqrt(dim)) if table else None)
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(dim)) if affine else None)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Normalize ``x`` and modulate it with the table and ``time``."""
        check.values(self, "x", x, (None, None, self.dim), x)
        h = ops.row_norm(accurate(x), self.weight, self.bias, self.rule)
        shift, scale = self._rows(time, x).to(h.dtype).unbind(-2)
        return modulate(h, scale, shift).to(x.dtype)

    def _rows(self, time: Tensor, x: Tensor) -> Tensor:
        """The two rows that a sample or a token has."""
        tokens = isinstance(time, Tensor) and time.dim() == 3
        one = isinstance(time, Tensor) and time.shape[-1:] == (self.dim,)
        width = self.dim if one else 2 * self.dim
        check.values(self, "time", time, (*x.shape[: 1 + tokens], width), x)
        rows = time.unsqueeze(-2).expand(*time.shape[:-1], 2, -1) if one else time.unflatten(-1, (2, self.dim))
        rows = accurate(rows)
        return rows if self.table is None else self.table.to(rows.dtype) + rows
