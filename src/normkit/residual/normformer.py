"""NormFormer: pre-norm with a norm behind attention, one inside the feedforward, and a learned scale for each head."""

from __future__ import annotations

from normkit.catalog import method
from normkit.residual.stream import SIZES, WholeLayer
from normkit.residual.wiring import At, Branch, Wiring


def _scales_residual(at: At) -> bool:
    return bool(at.options["scale_residual"])


@method(
    "normformer",
    paper="NormFormer: Improved Transformer Pretraining with Extra Normalization (Shleifer, Weston, Ott, 2021), "
    "arXiv 2110.09456",
    shape="B T C",
    over="C",
    inputs={"mask?": "B T : bool"},
    example=SIZES,
    exempt={
        "extremes offset float16": "near 1e4 float16 counts in steps of 8, and the slopes of two norms at rows of "
        "equal numbers, 300 each, overflow"
    },
)
class NormFormer(WholeLayer):
    """Build a pre-norm layer with norms behind attention and behind the activation, and a learned scale for each head.

    For pre-norm models, whose early layers get larger gradients than the late ones: the further norms even them out.
    With S the heads' scales, each on its slice of the features,

        y   = x + attention_output_norm(S A(attention_norm(x)))
        out = r + down(feedforward_hidden_norm(act(up(feedforward_norm(y))))),    r = y  or  residual_scale * y

    Args:
        dim: features of the stream.
        heads: heads of attention; they divide dim.
        hidden: features inside the feedforward.
        layer, depth: the layer's place in the model; not used.
        norm: a norm of the catalogue by name, or a function of the width, for all of them.
        activation: of the feedforward.
        causal: position t sees positions s <= t.
        scale_residual: multiply the stream beside the feedforward by a learned vector, as the smaller models do.
        **further: arguments of ``transformer-layer``, which is what is returned.

    NormFormer: Improved Transformer Pretraining with Extra Normalization (Shleifer, Weston, Ott, 2021), arXiv
    2110.09456.

    Differs from the paper, as the authors' code does, in: the heads' scales multiply slices of the projected output,
    not the heads before the projection.
    """

    wiring = Wiring(
        Branch(norm="input", output_norm=True),
        Branch(norm="input", residual_scale=_scales_residual),
        options={"scale_residual": False},
        head_scale=True,
        hidden="norm",
    )
