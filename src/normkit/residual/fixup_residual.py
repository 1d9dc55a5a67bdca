"""Fixup for transformers: no norm, but learned numbers in their place and a start that makes up for it."""

from __future__ import annotations

import torch
from torch import nn

from normkit.catalog import method
from normkit.residual.stream import SIZES, WholeLayer
from normkit.residual.wiring import At, Branch, Matrices, Wiring


@torch.no_grad()
def _init(matrices: Matrices, at: At) -> None:
    *inner, last = matrices.values()
    for matrix in inner:
        nn.init.xavier_uniform_(matrix, at.branches ** (-1 / (2 * len(inner))))
    nn.init.zeros_(last)


@method(
    "fixup-residual",
    paper="Fixup Initialization: Residual Learning Without Normalization (Zhang, Dauphin, Ma, 2019), arXiv 1901.09321",
    shape="B T C",
    over="",
    aliases=("fixup",),
    inputs={"mask?": "B T : bool"},
    example=SIZES,
    exempt={
        "extremes huge float16": "a sublayer's result for 6e4 overflows, and nothing normalizes it",
        "offsets 1e2 few gradients": "nothing normalizes what attention scores are made of: it is saturated",
        "offsets 1e4 gradients": "as at 1e2",
        "offsets 1e6 gradients": "as at 1e2",
    },
)
class FixupResidual(WholeLayer):
    """Build a layer that normalizes nothing: it shifts and scales by learned numbers, and starts as the identity.

    For deep transformers without norms. ``skipinit`` needs one number a branch and no rule for the start.

    A model of N residual branches (2 in a layer, 3 in one that reads an encoder) starts the last matrix of each at 0.
    It multiplies the start of the m others by N^(-1/(2m)). The rule follows from asking that one step moves the output
    by an amount that does not grow with depth. With shifts b and scales s, single numbers,

        y   = x + s_a A(x - b_a)
        out = y + s_f down(relu(up(y - b_f) - b_h) - b_o)

    Args:
        dim: features of the stream.
        heads: heads of attention; they divide dim.
        hidden: features inside the feedforward.
        layer: the layer's place in the model; not used.
        depth: how many layers the model has.
        activation: of the feedforward; the authors use relu.
        causal: position t sees positions s <= t.
        **further: arguments of ``transformer-layer``, which is what is returned.

    In the first step only the last matrices get a gradient.

    Fixup Initialization: Residual Learning Without Normalization (Zhang, Dauphin, Ma, 2019), arXiv 1901.09321.

    Differs from the paper, as the authors' code does, in: shifts are subtracted. Differs from the authors' recipe in:
    all numbers have one learning rate unless the optimizer is given groups; theirs is ten times smaller for the single
    numbers.
    """

    wiring = Wiring(
        Branch(shift=0.0, scale=1.0),
        defaults={"activation": "relu"},
        hidden="shift",
        init=_init,
        final_norm=False,
    )
