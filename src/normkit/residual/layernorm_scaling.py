"""LayerNorm scaling: pre-norm whose norms' outputs shrink with the layer."""

from __future__ import annotations

from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import Branch, Wiring


@method(
    "layernorm-scaling",
    paper="The Curse of Depth in Large Language Models (Sun et al., 2025), arXiv 2502.05795",
    shape="... C",
    over="C",
    example={**SUBLAYERS, "layer": 2, "depth": 4},
)
class LayerNormScaling(Block):
    """Add to the stream what each sublayer makes of a normalized copy, made smaller in deeper layers.

    For deep pre-norm models, whose late layers otherwise contribute little: here the variance of the hidden states
    grows polynomially, not exponentially. Use a plain initialization; with output projections scaled by depth the gain
    is lost. The final norm is not scaled.

        x <- x + A(c * attention_norm(x))
        x <- x + F(c * feedforward_norm(x)),    c = 1 / sqrt(layer + 1)

    Args:
        dim: features of the stream.
        layer: the block's place in the model, from 0.
        depth: how many layers the model has.
        norm: a norm of the catalogue by name, or a function of the width.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    The Curse of Depth in Large Language Models (Sun et al., 2025), arXiv 2502.05795.

    Differs from the authors' code in: their released option cannot be reached (its name is lower-cased, then compared
    with capitals); here it can.
    """

    wiring = Wiring(
        Branch(norm="input", gain=lambda at: (at.layer + 1) ** -0.5),
        defaults={"norm": "rmsnorm"},
        needs=("layer", "depth"),
    )
