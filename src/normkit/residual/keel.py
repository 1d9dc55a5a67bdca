"""Keel: post-norm with a large constant on the skip, and a norm on each sublayer's input."""

from __future__ import annotations

from normkit import check
from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import At, Branch, Wiring


def _alpha(at: At) -> float:
    alpha = at.options["alpha"]
    return float(at.stack) if alpha is None else check.number("keel", "alpha", alpha)


@method(
    "keel",
    paper="Post-LayerNorm Is Back: Stable, ExpressivE, and Deep (Chen and Wei, 2026), arXiv 2601.19895",
    evidence="equations",
    shape="... C",
    over="C",
    example={**SUBLAYERS, "depth": 4},
    exempt={
        "extremes huge float16": "eight times 6e4 overflows before it is normalized",
        "extremes offset float16": "eight times 1e4 overflows before it is normalized",
    },
)
class Keel(Block):
    """Normalize the stream, weighted up by a large constant, after adding what a sublayer made of a normalized copy.

    For post-norm models of hundreds of layers. At usual depths take ``pre-norm``.

    Each sublayer has two norms, one on its input and one after the sum:

        x <- attention_sum_norm(alpha x + A(attention_norm(x)))
        x <- feedforward_sum_norm(alpha x + F(feedforward_norm(x)))

    The stream leaves the block normalized, so the model needs no norm after its last block.

    Args:
        dim: features of the stream.
        layer: the block's place in the model; not used.
        depth: how many layers the model has.
        norm: a norm of the catalogue by name, or a function of the width.
        alpha: the stream's weight; None is the number of the model's sublayers, 2 depth.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    Post-LayerNorm Is Back: Stable, ExpressivE, and Deep (Chen and Wei, 2026), arXiv 2601.19895.
    """

    wiring = Wiring(
        Branch(norm="input", sum_norm=True, residual=_alpha),
        options={"alpha": None},
        defaults={"depth": 1},
        final_norm=False,
    )
