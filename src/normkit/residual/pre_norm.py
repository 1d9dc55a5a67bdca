"""Pre-norm: each sublayer reads a normalized copy of the stream."""

from __future__ import annotations

from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import Branch, Wiring


@method(
    "pre-norm",
    paper="On Layer Normalization in the Transformer Architecture (Xiong et al., 2020), arXiv 2002.04745",
    shape="... C",
    over="C",
    aliases=("pre-ln", "pre-layernorm"),
    example=SUBLAYERS,
)
class PreNorm(Block):
    """Add to the stream what each sublayer makes of a normalized copy of it.

    For transformers in general: the wiring to begin with. Where hidden states grow too large or the loss spikes, take
    ``peri-norm``; where deep layers come to add little, ``layernorm-scaling``.

    The wiring of GPT-2 and Llama: the identity path is untouched, so training needs no warm-up. The network needs one
    more norm after its last block.

        x <- x + A(attention_norm(x))
        x <- x + F(feedforward_norm(x))

    Args:
        dim: features of the stream.
        layer, depth: the block's place in the model; not used.
        norm: a norm of the catalogue by name, or a function of the width.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    On Layer Normalization in the Transformer Architecture (Xiong et al., 2020), arXiv 2002.04745.
    """

    wiring = Wiring(Branch(norm="input"))
