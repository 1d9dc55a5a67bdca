"""Peri-norm: a norm before and a norm after each sublayer, inside the branch."""

from __future__ import annotations

from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.wiring import Branch, Wiring


@method(
    "peri-norm",
    paper="Peri-LN: Revisiting Layer Normalization in the Transformer Architecture "
    "(Kim et al., 2025), arXiv 2502.02732",
    evidence="library",
    shape="... C",
    over="C",
    aliases=("peri-ln", "sandwich-norm", "sandwich-ln"),
    example=SUBLAYERS,
    exempt=dict.fromkeys(
        ("extremes zeros float16", "extremes tiny float16"),
        "the slopes of two norms at a zero vector, 1000 each, overflow",
    ),
    provenance="the paper's authors published no code; the wiring is checked with a third party's sandwich norm",
)
class PeriNorm(Block):
    """Normalize what each sublayer reads and what it writes, and leave the stream alone.

    For large language models whose hidden states or losses spike under ``pre-norm``, as at high learning rates. It has
    two norms more in each block; ``res-post-norm`` has the output norms alone.

    The wiring of Gemma 2 and 3, and CogView's sandwich: the hidden states' variance grows linearly with depth, and a
    sublayer's scale cannot reach the stream. A whole model also normalizes the embedding's output and the last hidden
    state.

        x <- x + attention_output_norm(A(attention_norm(x)))
        x <- x + feedforward_output_norm(F(feedforward_norm(x)))

    Args:
        dim: features of the stream.
        layer, depth: the block's place in the model; not used.
        norm: a norm of the catalogue by name, or a function of the width.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    Peri-LN: Revisiting Layer Normalization in the Transformer Architecture (Kim et al., 2025), arXiv 2502.02732.
    """

    wiring = Wiring(
        Branch(norm="input", output_norm=True),
        defaults={"norm": "rmsnorm"},
        layer_input=Branch(output_norm=True),
        embedding_norm=True,
    )
