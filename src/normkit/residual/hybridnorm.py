"""HybridNorm: heads normalize queries, keys and values, and around the feedforward the stream itself is normalized."""

from __future__ import annotations

from normkit.catalog import method
from normkit.residual.stream import SIZES, WholeLayer
from normkit.residual.wiring import QKV, At, Branch, Wiring

STEEP = "the slopes of two norms at a zero vector, 1000 each, overflow"


def _first(at: At) -> int:
    return int(bool(at.options["first_pre_norm"]))


@method(
    "hybridnorm",
    paper="HybridNorm: Towards Stable and Efficient Transformer Training via Hybrid Normalization "
    "(Zhuo et al., 2025), arXiv 2503.04598",
    shape="B T C",
    over="C",
    inputs={"mask?": "B T : bool"},
    example=SIZES,
    aliases={"hybridnorm*": {"first_pre_norm": True}},
    exempt={
        "extremes zeros float16": STEEP,
        "extremes tiny float16": STEEP,
        "extremes huge float16": "attention reads the stream as it is, and its product with 6e4 overflows",
    },
)
class HybridNorm(WholeLayer):
    """Build a layer whose attention normalizes queries, keys and values, and whose feedforward normalizes the stream.

    For deep models that are to train as steadily as pre-norm ones and end as well as post-norm ones. Attention reads
    the stream as it is; the model's final norm stays.

        y   = x + A(x),        A: q <- query_norm(q), k <- key_norm(k), v <- value_norm(v), head by head
        out = h + F(h),        h = feedforward_norm(y)

    ``hybridnorm*`` wires the first layer as pre-norm, with the norms inside the heads kept.

    Args:
        dim: features of the stream.
        heads: heads of attention; they divide dim.
        hidden: features inside the feedforward.
        layer: the layer's place in the model, from 0.
        depth: how many layers the model has.
        norm: a norm of the catalogue by name, or a function of the width, for the stream and for the heads.
        activation: of the feedforward.
        causal: position t sees positions s <= t.
        first_pre_norm: whether layer 0 is pre-norm, as in the paper's HybridNorm*.
        **further: arguments of ``transformer-layer``, which is what is returned.

    HybridNorm: Towards Stable and Efficient Transformer Training via Hybrid Normalization (Zhuo et al., 2025), arXiv
    2503.04598.

    Differs from the paper, as the authors' code does, in: the stream goes on normalized, norm(y) + F(norm(y)), not
    norm(y + F(y)). Differs from the authors' code in: eps of rmsnorm is 1e-6, where their configuration has 1e-5.
    """

    wiring = Wiring(
        Branch(),
        Branch(norm="stream"),
        options={"first_pre_norm": False},
        defaults={"norm": "rmsnorm"},
        head_norms=QKV,
        early=_first,
        early_wiring=Wiring(Branch(norm="input"), head_norms=QKV),
    )
