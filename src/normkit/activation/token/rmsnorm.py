"""RMSNorm: divide by the root mean square."""

from __future__ import annotations

from torch import nn

from normkit import check, ops
from normkit.activation.token._row import RowNorm
from normkit.catalog import method


@method(
    "rmsnorm",
    paper="Root Mean Square Layer Normalization (Zhang and Sennrich, 2019), arXiv 1910.07467",
    shape="... C",
    over="C",
    replaces=("layernorm",),
    invariant=("scale",),
    peer=lambda dim: nn.RMSNorm(dim, eps=1e-6),
)
class RMSNorm(RowNorm):
    """Divide each vector by its root mean square and multiply by a learned gain.

    For transformers: the cheaper LayerNorm of Llama, Gemma and their kin, one statistic instead of two. Over the last
    axis,

        y = x / sqrt(mean(x²) + eps) * (offset + weight) [+ bias]

    Args:
        dim: size of the last axis.
        eps: keeps the root away from 0; 0 is honoured.
        p: the mean is taken over the first ``int(dim * p)`` entries only; all entries are divided (the paper's
            pRMSNorm).
        bias: add a learned shift.
        offset: the gain is ``offset + weight``; 1 is Gemma's dialect, whose ``weight`` starts at 0.
        eps_inside: eps under the root (torch, Llama, Gemma), or added to the root (the paper's authors, with eps=1e-8).
        cast: when a half-precision result is rounded: ``"early"``, before the gain (Llama), ``"late"``, after it
            (Gemma), or ``"auto"``: late with an offset, else early.

    Root Mean Square Layer Normalization (Zhang and Sennrich, 2019), arXiv 1910.07467.

    Differs from the authors' code in: eps sits under the root unless ``eps_inside=False``; the full form is ``p=1``,
    not -1.
    """

    def __init__(
        self,
        dim: int,
        *,
        eps: float = 1e-6,
        p: float = 1.0,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        cast: str = "auto",
    ):
        dim = check.size(self, "dim", dim)
        check.number(self, "p", p, 0.0, 1.0, open_low=True)
        check.choice(self, "cast", cast, ("auto", "early", "late"))
        rule = ops.Row(
            statistic="square",
            eps=check.eps(self, eps),
            eps_place="inside" if eps_inside else "outside",
            part=check.size(self, "int(dim * p)", int(dim * p)),
            offset=check.number(self, "offset", offset),
            cast=("late" if offset else "early") if cast == "auto" else cast,
        )
        super().__init__(dim, rule, gain=1.0 - offset, bias=bias)
