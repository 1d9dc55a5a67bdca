"""LAuReL: a skip that learns a low-rank map beside the identity, as Gemma 3n has it around attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.residual.norms import add_then
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.streams import small_normal
from normkit.residual.wiring import At, Branch, Connection, NormMaker, Own, Part, Wiring

SANDWICH = Branch(norm="input", output_norm=True)
STEEP = "the slopes of several norms at a zero vector, 1000 each, overflow"


class LowRank(nn.Module):
    """h plus a normalized map of it by two thin matrices."""

    def __init__(self, dim: int, rank: int, make: NormMaker):
        super().__init__()
        self.down, self.up = small_normal(rank, dim), small_normal(dim, rank)
        self.norm = make()

    def forward(self, h: Tensor) -> Tensor:
        """Map ``h`` (..., dim)."""
        return h + self.norm(F.linear(F.linear(h, self.down.to(h.dtype)), self.up.to(h.dtype)))


@dataclass(frozen=True)
class Augmented(Connection):
    """A sublayer between two norms, beside which its normalized input passes a map of low rank too."""

    def at(self, place: At) -> Connection:
        """Return the connection of one sublayer, without the map where the placement's ``rank`` is None."""
        return SANDWICH if place.options["rank"] is None else self

    def parts(self, place: At, make: NormMaker) -> dict[str, Part]:
        """Build the two norms and the map."""
        rank = check.size("laurel", "rank", place.options["rank"])
        return {**SANDWICH.parts(place, make), "laurel": LowRank(place.dim, rank, make)}

    def read(self, own: Own, held: Any) -> tuple[Tensor, Any]:
        """Return the sublayer's input, and the stream with what the map makes of that input."""
        h, x = add_then(own("norm"), *held)
        return h, (x, own("laurel")(h))

    def write(self, own: Own, kept: Any, y: Tensor) -> Any:
        """Return the sum of all three, smaller by the root of 2."""
        x, mapped = kept
        return (x + own("output_norm")(y) + mapped) * math.sqrt(0.5), None


@method(
    "laurel",
    paper="LAuReL: Learned Augmented Residual Layer (Menghani et al., 2024), arXiv 2411.07501",
    evidence="library",
    shape="... C",
    over="C",
    aliases=("learned-augmented-residual-layer",),
    example={**SUBLAYERS, "rank": 3},
    exempt={
        **dict.fromkeys(("extremes zeros float16", "extremes tiny float16"), STEEP),
        "half float16": "the norm of a map of few features enlarges what rounding leaves of them",
    },
    provenance="transformers' Gemma 3n; no runnable code of the authors is known",
)
class Laurel(Block):
    """Let the skip around attention learn a low-rank map of its own, and normalize what each sublayer reads and writes.

    For a better model at a few more parameters, the form of Gemma 3n. Per token,

        h = attention_norm(x)
        x <- (x + attention_output_norm(A(h)) + h + laurel_norm(up (down h))) / sqrt(2)
        x <- x + feedforward_output_norm(F(feedforward_norm(x)))

    Args:
        dim: features of the stream.
        layer, depth: the block's place in the model; not used.
        norm: a norm of the catalogue by name, or a function of the width.
        rank: rows of down, r; None: there is no map, and this is [peri-norm](peri-norm.md).
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    State: the four norms ``attention_norm``, ``attention_output_norm``, ``feedforward_norm`` and
    ``feedforward_output_norm``; ``attention_laurel`` with ``down`` (r, dim), ``up`` (dim, r), normal with deviation
    0.02, and ``norm``.

    LAuReL: Learned Augmented Residual Layer (Menghani et al., 2024), arXiv 2411.07501; the form of Gemma 3n.

    Differs from the paper in: the map reads the normalized stream, is itself normalized, has no learned weights of the
    two sides, and is beside attention alone.
    """

    wiring = Wiring(
        Augmented(), SANDWICH, options={"rank": 64}, defaults={"norm": "rmsnorm"}, layer_input=Branch(output_norm=True)
    )
