"""WideNet: one transformer layer passed many times, with norms of its own for each pass."""

from __future__ import annotations

from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.residual.norms import NormName, add_then, make_norm
from normkit.residual.stream import SUBLAYERS, Sublayer, sublayer_of


@method(
    "widenet",
    paper="Go Wider Instead of Deeper (Xue et al., 2021), arXiv 2107.11817",
    evidence="equations",
    shape="... C",
    over="C",
    example={**SUBLAYERS, "depth": 3},
    exempt={"extremes offset float16": "gradients through several norms and matrices overflow"},
)
class WideNet(Method):
    """Pass the stream ``depth`` times through the same two sublayers, each pass with norms of its own.

    For networks with few parameters: the sublayers' weights exist once, and because the norms differ, a router inside
    the feedforward (the paper's mixture of experts) sends a token to different experts at each depth. Sharing the
    norms too loses accuracy. The whole stack is one block; for i = 0 .. depth - 1,

        x <- x + A(attention_norms[i](x))
        x <- x + F(feedforward_norms[i](x))

    Args:
        dim: features of the stream.
        depth: how many passes.
        norm: a norm of the catalogue by name, or a function of the width.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's,
            and their gradients sum over the passes.

    Go Wider Instead of Deeper (Xue et al., 2021), arXiv 2107.11817.
    """

    def __init__(
        self,
        *,
        dim: int,
        depth: int,
        norm: NormName = "layernorm",
        attention: Sublayer,
        feedforward: Sublayer,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        passes = range(check.size(self, "depth", depth))
        self.attention_norms = nn.ModuleList(make_norm(self, norm, dim) for _ in passes)
        self.feedforward_norms = nn.ModuleList(make_norm(self, norm, dim) for _ in passes)
        self.attention = sublayer_of(self, "attention", attention)
        self.feedforward = sublayer_of(self, "feedforward", feedforward)

    def forward(self, x: Tensor) -> Tensor:
        """Pass ``x`` (..., dim) through all of the stack."""
        check.features_last(self, x, self.dim)
        pending: Tensor | None = None
        for before_attention, before_feedforward in zip(self.attention_norms, self.feedforward_norms, strict=True):
            inner, x = add_then(before_attention, x, pending)
            inner, x = add_then(before_feedforward, x, self.attention(inner))
            pending = self.feedforward(inner)
        return x if pending is None else x + pending
