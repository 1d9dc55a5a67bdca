"""Post-norm: the stream itself is normalized after every sublayer."""

from __future__ import annotations

from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import Branch, Wiring


@method(
    "post-norm",
    paper="Attention Is All You Need (Vaswani et al., 2017), arXiv 1706.03762",
    shape="... C",
    over="C",
    aliases=("post-ln", "post-layernorm"),
    example=SUBLAYERS,
    exempt={"extremes huge float16": "a sum of 6e4 with its sublayer overflows before it is normalized"},
)
class PostNorm(Block):
    """Normalize the stream after each sublayer has been added to it.

    For loading BERT and other transformers of its form, and for shallow models that are trained with warm-up. Deep
    models train more easily with ``pre-norm``; ``deepnorm`` keeps this wiring at great depth.

    The wiring of the first transformer and BERT: the norm is on the main branch, which rescales the identity path at
    every sublayer; early layers' gradients shrink with depth, and training needs warm-up. No final norm is needed.

        x <- attention_norm(x + A(x))
        x <- feedforward_norm(x + F(x))

    Args:
        dim: features of the stream.
        layer, depth: the block's place in the model; not used.
        norm: a norm of the catalogue by name, or a function of the width.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    Attention Is All You Need (Vaswani et al., 2017), arXiv 1706.03762.
    """

    wiring = Wiring(Branch(norm="sum"), final_norm=False)
