"""Res-post-norm: a norm after each sublayer, inside the branch."""

from __future__ import annotations

from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import Branch, Wiring


@method(
    "res-post-norm",
    paper="Swin Transformer V2: Scaling Up Capacity and Resolution (Liu et al., 2021), arXiv 2111.09883",
    evidence="library",
    shape="... C",
    over="C",
    example=SUBLAYERS,
    exempt={"extremes huge float16": "a sublayer's result for 6e4 overflows before it is normalized"},
)
class ResPostNorm(Block):
    """Normalize what each sublayer writes, and neither what it reads nor the stream.

    For transformers that are scaled up, where under ``pre-norm`` the stream's size follows the weights and grows with
    depth. Where sublayers should also read something normalized, take ``peri-norm``.

    The wiring of Swin V2 and OLMo 2: every branch adds an amount that its gain fixes, so the stream grows slowly with
    depth, however large the weights are. The network needs one more norm after its last block.

        x <- x + attention_output_norm(A(x))
        x <- x + feedforward_output_norm(F(x))

    Args:
        dim: features of the stream.
        layer, depth: the block's place in the model; not used.
        norm: a norm of the catalogue by name, or a function of the width.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    Swin Transformer V2: Scaling Up Capacity and Resolution (Liu et al., 2021), arXiv 2111.09883; without its extra norm
    of the stream every six layers in the largest models. 2 OLMo 2 Furious (2025), arXiv 2501.00656.
    """

    wiring = Wiring(Branch(output_norm=True))
