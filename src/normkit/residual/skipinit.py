"""SkipInit: no norm, but a learned number on each branch that starts at 0."""

from __future__ import annotations

from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import Branch, Wiring


@method(
    "skipinit",
    paper="Batch Normalization Biases Residual Blocks Towards the Identity Function in Deep Networks "
    "(De and Smith, 2020), arXiv 2002.10444",
    evidence="equations",
    shape="... C",
    over="",
    aliases=("rezero",),
    example=SUBLAYERS,
    exempt={"extremes huge float16": "a sublayer's result for 6e4 overflows, and nothing normalizes it"},
)
class SkipInit(Block):
    """Add each sublayer to the stream with a learned weight that starts at 0, and normalize nothing.

    For deep residual networks without batch norm: every block is the identity at the start. The sublayers' own
    weights get no gradient in the first step; only the two numbers move.

        x <- x + attention_scale * A(x)
        x <- x + feedforward_scale * F(x)

    Args:
        dim: features of the stream.
        layer, depth: the block's place in the model; not used.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    Batch Normalization Biases Residual Blocks Towards the Identity Function in Deep Networks (De and Smith, 2020),
    arXiv 2002.10444.
    """

    wiring = Wiring(Branch(scale=0.0), final_norm=False)
