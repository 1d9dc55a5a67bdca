"""SiameseNorm: a pre-norm and a post-norm stream that share every sublayer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import At, Connection, Form, NormMaker, Own, Part, Wiring


class LastNorms(nn.Module):
    """What a model has after its last layer: a norm for each stream, and their sum."""

    def __init__(self, make: NormMaker):
        super().__init__()
        self.post_norm, self.identity_norm = make(), make()

    def forward(self, post: Tensor, identity: Tensor) -> Tensor:
        """Return one stream."""
        return self.post_norm(post) + self.identity_norm(identity)


@dataclass(frozen=True)
class Pair(Form):
    """Two vectors of one size, (post, identity); both begin as the embedding."""

    def check(self, owner: object, stream: Any, place: At, leading: tuple[None, ...] | None = None) -> Tensor:
        """Require the two."""
        post, identity = self.check_pair(owner, ("post", "identity"), stream)
        self.check_part(owner, "post", post, (place.dim,), leading)
        check.values(owner, "identity", identity, post.shape, post)
        return post

    def expand(self, x: Tensor, place: At, expansion: nn.Module | None = None) -> Any:
        """Return the embedding twice."""
        return x, x

    def collapse(self, place: At, make: NormMaker) -> nn.Module:
        """Build the last norms of the two."""
        return LastNorms(make)

    def end(self, stream: Any, collapse: nn.Module | None, norm: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the normalized sum of the two."""
        assert collapse is not None
        return norm(collapse(*stream))


@dataclass(frozen=True)
class Shared(Connection):
    """A sublayer that reads the sum of both streams, and whose output goes to both."""

    shrink: float = 1.0

    def at(self, place: At) -> Connection:
        """Return the connection in a layer, which knows by how much the post stream's share is smaller."""
        return Shared(1 / math.sqrt(place.sublayers * (place.layer + 1)))

    def parts(self, place: At, make: NormMaker) -> dict[str, Part]:
        """Build the norms of the post stream, of the identity stream and of their sum."""
        return {"post_norm": make(), "identity_norm": make(), "norm": make()}

    def read(self, own: Own, held: Any) -> tuple[Tensor, Any]:
        """Return the sublayer's input, and both streams, the post stream normalized."""
        post, identity = held
        post = own("post_norm")(post)
        return own("norm")(post + own("identity_norm")(identity)), (post, identity)

    def write(self, own: Own, kept: Any, y: Tensor) -> Any:
        """Return both streams."""
        post, identity = kept
        return post + y * self.shrink, identity + y


@method(
    "siamese-norm",
    paper="SiameseNorm: Breaking the Barrier to Reconciling Pre/Post-Norm (Li et al., 2026), arXiv 2602.08064",
    shape="... C",
    over="C",
    inputs={"identity": "... C"},
    example=SUBLAYERS,
)
class SiameseNorm(Block):
    """Let each sublayer read two streams, one normalized on its way and one not, and write to both.

    For models that are to end as well as post-norm ones and to train as steadily as pre-norm ones, at high learning
    rates. For A, and then for F, with c = sqrt(2 (layer + 1)),

        p <- post_norm(p),    d = F(norm(p + identity_norm(y))),    p <- p + d / c,    y <- y + d

    Both streams begin as the embedding. After its last block a model has norm(post_norm(p) + identity_norm(y)), whose
    inner two norms are those of ``collapse``.

    Args:
        dim: features of each stream.
        layer: the block's place in the model, from 0.
        depth: how many layers the model has; not used.
        norm: a norm of the catalogue by name, or a function of the width.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    ``block(post, identity)`` returns the two. State, of each sublayer: ``attention_post_norm``,
    ``attention_identity_norm`` and, on their sum, ``attention_norm``.

    SiameseNorm: Breaking the Barrier to Reconciling Pre/Post-Norm (Li et al., 2026), arXiv 2602.08064.

    Differs from the authors' code in: this is their vision block; their language model has a learned vector on p in
    attention, and norms on queries, keys and values.
    """

    wiring = Wiring(Shared(), form=Pair())

    def forward(  # type: ignore[override]
        self, post: Tensor, identity: Tensor, **arguments: Any
    ) -> tuple[Tensor, Tensor]:
        """Pass both streams (..., dim) through both sublayers; further keyword arguments go to ``attention``."""
        return self.through((post, identity), arguments)
