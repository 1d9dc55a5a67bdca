"""Query-key norm as a placement: pre-norm, and a norm of each head's queries and keys."""

from __future__ import annotations

from normkit.catalog import method
from normkit.residual.stream import SIZES, WholeLayer
from normkit.residual.wiring import Branch, Wiring


@method(
    "qk-norm-layer",
    paper="Scaling Vision Transformers to 22 Billion Parameters (Dehghani et al., 2023), arXiv 2302.05442",
    evidence="library",
    shape="B T C",
    over="C",
    inputs={"mask?": "B T : bool"},
    example=SIZES,
    aliases=("qk-norm",),
    exempt={"gradients attention.key_norm.bias": "one shift of all keys adds the same to all scores of a query"},
)
class QKNormLayer(WholeLayer):
    """Build a pre-norm layer that also normalizes each head's queries and keys, which bounds every score.

    For large learning rates, under which scores would grow until attention looks at one key alone. Where the forward
    pass must stay as it is, take ``qk-clip``.

    The wiring of ViT-22B, Qwen 3 and Gemma 3. The gains are shared by the heads and stand before any rotary embedding;
    the core alone is ``qk-norm``, and where a placement is asked for, that name means this one.

        x <- x + A(attention_norm(x)),        A: q <- query_norm(q), k <- key_norm(k), head by head
        x <- x + F(feedforward_norm(x))

    Args:
        dim: features of the stream.
        heads: heads of attention; they divide dim.
        hidden: features inside the feedforward.
        layer, depth: the layer's place in the model; not used.
        norm: a norm of the catalogue by name, or a function of the width, for the stream and for the heads.
        activation: of the feedforward.
        causal: position t sees positions s <= t.
        **further: arguments of ``transformer-layer``, which is what is returned.

    Scaling Vision Transformers to 22 Billion Parameters (Dehghani et al., 2023), arXiv 2302.05442.

    Differs from the authors' code in: attention and feedforward follow one another; theirs run side by side. Their
    layer norms have no shift.
    """

    wiring = Wiring(Branch(norm="input"), head_norms=("query", "key"))
