"""ScaleNorm: one learned length for all vectors."""

from __future__ import annotations

import math

import torch
from torch import nn

from normkit import check, ops
from normkit.activation.token._row import RowNorm
from normkit.catalog import method


@method(
    "scalenorm",
    paper="Transformers without Tears: Improving the Normalization of Self-Attention (Nguyen and Salazar, 2019), "
    "arXiv 1910.05895",
    shape="... C",
    over="C",
    replaces=("layernorm", "rmsnorm"),
    called={"the authors' ScaleNorm over a width": "dim eps"},
    invariant=("scale",),
)
class ScaleNorm(RowNorm):
    """Give every vector the same learned length.

    For small or low-resource transformers, before every sublayer and at the end, together with FixNorm. Where each
    feature should have a gain of its own, take ``rmsnorm``.

    Over the last axis, with one scalar weight that starts at sqrt(dim),

        y = weight * x / max(||x||, eps)

    Args:
        dim: size of the last axis.
        eps: the least length that is divided by; a maximum, not an addition; 0 is honoured.

    Transformers without Tears (Nguyen and Salazar, 2019), arXiv 1910.05895.
    """

    def __init__(self, dim: int, *, eps: float = 1e-5):
        dim = check.size(self, "dim", dim)
        super().__init__(dim, ops.Row(eps=check.eps(self, eps), eps_place="floor"), gain=None)
        self.weight = nn.Parameter(torch.full((1,), math.sqrt(dim)))
