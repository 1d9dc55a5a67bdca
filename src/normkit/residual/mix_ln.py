"""Mix-LN: post-norm in the first layers, pre-norm in the others."""

from __future__ import annotations

from normkit import check
from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import At, Branch, Wiring

STEEP = "the slopes of two norms at a zero vector, 1000 each, overflow"


def _early(at: At) -> int:
    return int(check.number("mix-ln", "alpha", at.options["alpha"], 0.0, 1.0) * at.depth)


@method(
    "mix-ln",
    paper="Mix-LN: Unleashing the Power of Deeper Layers by Combining Pre-LN and Post-LN "
    "(Li, Yin, Liu, 2024), arXiv 2412.13795",
    shape="... C",
    over="C",
    example={**SUBLAYERS, "layer": 1, "depth": 8},
    exempt={
        "extremes zeros float16": STEEP,
        "extremes tiny float16": STEEP,
        "extremes huge float16": "a sum of 6e4 with its sublayer overflows before it is normalized",
    },
)
class MixLN(Block):
    """Normalize the stream itself in the first layers, and a copy of it in the others.

    For gradient norms that are even over the layers. With layer < int(alpha * depth) the block is post-norm, else
    pre-norm; the final norm after the last block stays, and warm-up is still needed.

        x <- attention_norm(x + A(x)),    x <- feedforward_norm(x + F(x))      (first layers)
        x <- x + A(attention_norm(x)),    x <- x + F(feedforward_norm(x))      (others)

    Args:
        dim: features of the stream.
        layer: the block's place in the model, from 0.
        depth: how many layers the model has.
        norm: a norm of the catalogue by name, or a function of the width.
        alpha: the share of the layers that are post-norm.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    Mix-LN: Unleashing the Power of Deeper Layers by Combining Pre-LN and Post-LN (Li, Yin, Liu, 2024), arXiv
    2412.13795.
    """

    wiring = Wiring(
        Branch(norm="input"),
        options={"alpha": 0.25},
        defaults={"norm": "rmsnorm"},
        needs=("layer", "depth"),
        early=_early,
        early_wiring=Wiring(Branch(norm="sum")),
    )
