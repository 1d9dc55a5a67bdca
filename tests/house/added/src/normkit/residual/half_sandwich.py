"""Half sandwich: pre-norm, with a norm behind the feedforward too."""

from __future__ import annotations

from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import Branch, Wiring


@method(
    "half-sandwich",
    paper="An example of the tests (normkit, 2026)",
    shape="... C",
    over="C",
    example=SUBLAYERS,
    evidence="equations",
)
class HalfSandwich(Block):
    """Normalize what each sublayer reads, and what the feedforward writes.

    For models whose feedforward gives the largest entries of the stream.

        x <- x + A(attention_norm(x))
        x <- x + feedforward_output_norm(F(feedforward_norm(x)))

    Args:
        dim: features of the stream.
        layer, depth: the block's place in the model; not used.
        norm: a norm of the catalogue by name, or a function of the width.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    An example of the tests (normkit, 2026).
    """

    wiring = Wiring(Branch(norm="input"), Branch(norm="input", output_norm=True))
