"""nGPT: a transformer on the unit sphere."""

from __future__ import annotations

import math

import torch
from torch import nn

from normkit import check
from normkit.catalog import method
from normkit.residual.stream import SIZES, WholeLayer
from normkit.residual.wiring import At, Branch, Matrices, Wiring


def _base_scale(at: At) -> float:
    scale = at.options["base_scale"]
    return at.dim**-0.5 if scale is None else check.number("ngpt", "base_scale", scale, 0.0, open_low=True)


@torch.no_grad()
def _init(matrices: Matrices, at: At) -> None:
    *inner, last = matrices.values()
    std = _base_scale(at)
    for matrix in inner:
        nn.init.normal_(matrix, std=std)
    nn.init.normal_(last, std=std / math.sqrt(at.branches))


@method(
    "ngpt",
    paper="nGPT: Normalized Transformer with Representation Learning on the Hypersphere (Loshchilov et al., 2024), "
    "arXiv 2410.01131",
    shape="B T C",
    over="C",
    inputs={"mask?": "B T : bool"},
    example=SIZES,
    exempt={"extremes huge float16": "attention reads the stream as it is, and its product with 6e4 overflows"},
)
class NGPT(WholeLayer):
    """Build a layer whose stream moves on the unit sphere, a learned share of the way to what each sublayer gives.

    For the same loss in fewer steps, without weight decay and warm-up: every vector and every row of a matrix has
    length 1, so a product is a cosine. With n(z) = z / |z| and s0 = base_scale, at which learned numbers are stored,

        h   = n(n(x) + |alpha_a 0.05 / s0| (n(A(x)) - n(x))),    A: q, k <- n(q) qk_scale / s0, n(k) qk_scale / s0,
                                                                     scores times sqrt(head_dim)
        out = n(n(h) + |alpha_f 0.05 / s0| (n(F(h)) - n(h))),    F(h) = down(u silu(v)),
                                                                     u, v = up(h) uv_scale sqrt(dim)

    ``layer.normalize_weights()`` brings the matrices back to the sphere; call it after every step of the optimizer. A
    model does so for its layers and embeddings, and multiplies its logits by learned numbers.

    Args:
        dim: features of the stream.
        heads: heads of attention; they divide dim.
        hidden: features inside the feedforward, 4 dim in the paper.
        layer: the layer's place in the model; not used.
        depth: how many layers the model has.
        causal: position t sees positions s <= t.
        base_scale: what ``attention_alpha``, ``feedforward_alpha`` and ``qk_scale`` start at, which under Adam sets how
            fast they learn; None is 1 / sqrt(dim).
        **further: arguments of ``transformer-layer``, which is what is returned.

    nGPT: Normalized Transformer with Representation Learning on the Hypersphere (Loshchilov et al., 2024), arXiv
    2410.01131.

    Differs from the authors' code in: lengths have a floor of 1e-12; a rotary embedding is the usual one.
    """

    wiring = Wiring(
        Branch(sphere=_base_scale),
        options={"base_scale": None},
        hidden="scale",
        activation="swiglu",
        init=_init,
        final_norm=False,
    )
