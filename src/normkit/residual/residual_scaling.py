"""Residual scaling: no norm, but branches weighted down by a constant."""

from __future__ import annotations

from normkit import check
from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import At, Branch, Wiring

POWERS = {"inverse": -1.0, "root": -0.5}


def _scaling(at: At) -> float:
    scaling = at.options["scaling"]
    if not isinstance(scaling, str):
        return check.number("residual-scaling", "scaling", scaling)
    return at.branches ** POWERS[check.choice("residual-scaling", "scaling", scaling, tuple(POWERS))]


@method(
    "residual-scaling",
    paper="On residual network depth (Dherin and Munn, 2025), arXiv 2510.03470",
    evidence="equations",
    shape="... C",
    over="",
    example={**SUBLAYERS, "depth": 4},
    exempt={"extremes huge float16": "a sublayer's result for 6e4 overflows, and nothing normalizes it"},
    provenance="no authors' code; that n counts two modules a layer is our reading",
)
class ResidualScaling(Block):
    """Add each sublayer to the stream with one constant weight, and normalize nothing.

    For deep networks without norms: the network is a sum over paths through n modules, and the constant keeps the sum
    over the exploding number of long paths bounded. With n = 2 depth,

        x <- x + lambda A(x)
        x <- x + lambda F(x),    lambda = 1 / n  ("inverse"),  1 / sqrt(n)  ("root"),  or a number

    Args:
        dim: features of the stream.
        layer: the block's place in the model; not used.
        depth: how many layers the model has.
        scaling: ``"inverse"``, ``"root"`` or lambda itself.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    On residual network depth (Dherin and Munn, 2025), arXiv 2510.03470.
    """

    wiring = Wiring(
        Branch(branch=_scaling),
        options={"scaling": "inverse"},
        needs=("depth",),
        final_norm=False,
    )
