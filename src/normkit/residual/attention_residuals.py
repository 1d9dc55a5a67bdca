"""Attention residuals: each sublayer reads a softmax over what all earlier ones wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.residual.depth_attention import DepthAttention, mixture
from normkit.residual.norms import make_norm
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import At, Connection, Form, NormMaker, Own, Part, Wiring


def join(blocks: Tensor, partial: Tensor) -> Tensor:
    """Return the closed blocks and the running sum as one tensor (count + 1, ..., dim)."""
    return torch.cat([blocks, partial.unsqueeze(0)])


@dataclass(frozen=True)
class Blocks(Form):
    """A list of vectors and a running sum, (blocks, partial); at first no block, and the embedding."""

    def check(self, owner: object, stream: Any, place: At, leading: tuple[None, ...] | None = None) -> Tensor:
        """Require the two."""
        blocks, partial = self.check_pair(owner, ("blocks", "partial"), stream)
        self.check_part(owner, "partial", partial, (place.dim,), leading)
        check.values(owner, "blocks", blocks, (None, *partial.shape), partial)
        return partial

    def expand(self, x: Tensor, place: At, expansion: nn.Module | None = None) -> Any:
        """Return no block, and the embedding."""
        return x.new_empty((0, *x.shape)), x

    def collapse(self, place: At, make: NormMaker) -> nn.Module:
        """Build the last mixture."""
        return DepthAttention(place.dim)

    def end(self, stream: Any, collapse: nn.Module | None, norm: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the last mixture, normalized."""
        assert collapse is not None
        return norm(collapse(join(*stream)))


@dataclass(frozen=True)
class Mixed(Connection):
    """A sublayer that reads a mixture of all blocks; one that ``closes`` begins another block."""

    closes: bool = False

    def at(self, place: At) -> Connection:
        """Return the connection of one sublayer."""
        size = check.size("attention-residuals", "block_size", place.options["block_size"])
        return Mixed(place.number % size == 0)

    def parts(self, place: At, make: NormMaker) -> dict[str, Part]:
        """Build the query, the norm of the sources and the sublayer's own."""
        query = nn.Parameter(torch.zeros(place.dim))
        return {"query": query, "source_norm": make_norm(self, "rmsnorm", place.dim), "norm": make()}

    def read(self, own: Own, held: Any) -> tuple[Tensor, Any]:
        """Return the sublayer's input, and the stream."""
        sources = join(*held)
        h = mixture(sources, own("query"), own("source_norm"))
        return own("norm")(h), (sources, *held)

    def write(self, own: Own, kept: Any, y: Tensor) -> Any:
        """Return the stream, with the sum so far among the blocks where a block is closed."""
        sources, blocks, partial = kept
        y = y.to(partial.dtype)
        return (sources, y) if self.closes else (blocks, partial + y)


@method(
    "attention-residuals",
    paper="Attention Residuals (Kimi Team, 2026), arXiv 2603.15031",
    evidence="equations",
    shape="K ... C",
    over="C",
    inputs={"partial": "... C"},
    aliases=("attn-res",),
    example={**SUBLAYERS, "depth": 4},
)
class AttentionResiduals(Block):
    """Let each sublayer read a softmax-weighted mean of what earlier sublayers wrote, in place of their sum.

    For deep models: a sublayer chooses which earlier outputs it needs, and what it reads does not grow with depth. The
    blocks' outputs have to be kept; a plain stream, as of ``pre-norm``, is one sum.

    Sublayer i = 2 layer (A), 2 layer + 1 (F) has a query of its own. With the sources v, the blocks and the partial,

        h = sum share v,    share = softmax over sources of query . (v / sqrt(mean(v²) + 1e-6) * source_norm.weight)
        blocks, partial <- [blocks, partial], F(norm(h))      if i mod block_size = 0
        blocks, partial <- blocks, partial + F(norm(h))       otherwise

    A model begins without blocks, the embedding as partial, and ends with one more mixture, its ``collapse``.

    Args:
        dim: features of the stream.
        layer: the block's place in the model, from 0.
        depth: how many layers the model has; not used.
        norm: a norm of the catalogue by name, or a function of the width: of the sublayers' inputs.
        block_size: how many sublayers are summed to one source; 1 keeps the output of each.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    ``block(blocks, partial)`` returns the two: blocks (count, ..., dim), partial (..., dim). State, of each sublayer:
    ``attention_query`` (dim,), zeros, ``attention_source_norm.weight`` (dim,), ``attention_norm``.

    Attention Residuals (Kimi Team, 2026), arXiv 2603.15031.
    """

    wiring = Wiring(Mixed(), form=Blocks(), options={"block_size": 1}, defaults={"norm": "rmsnorm"})

    def forward(  # type: ignore[override]
        self, blocks: Tensor, partial: Tensor, **arguments: Any
    ) -> tuple[Tensor, Tensor]:
        """Pass the stream through both sublayers; further keyword arguments go to ``attention``."""
        return self.through((blocks, partial), arguments)
