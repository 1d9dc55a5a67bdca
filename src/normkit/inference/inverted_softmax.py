"""The inverted softmax: retrieval scores, normalized for each gallery item."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import bank as _bank
from normkit.inference._scores import invert, scores


@method(
    "inverted-softmax",
    paper="Offline bilingual word vectors, orthogonal transformations and the inverted softmax (Smith et al., 2017), "
    "arXiv 1702.03859",
    shape="N G",
    over="B",
    inputs={"bank": "B G"},
    invariant=("scale of a gallery item's scores",),
)
def inverted_softmax(similarity: Tensor, bank: Tensor, *, beta: float = 20.0) -> Tensor:
    """Divide a query's score of each gallery item by what a bank of queries gives that item.

    For retrieval with hubs, items near to everything: they get much from the whole bank, and so lose. Where the bank is
    small or of another kind, take ``dynamic-inverted-softmax``; ``csls`` has no sharpness to choose.

        out[q, g] = exp(beta similarity[q, g]) / sum_b exp(beta bank[b, g])

    The query itself is not in the sum unless it is in the bank, so values may exceed 1. Worked out as one exponential
    of a difference, in at least float32.

    Args:
        similarity: scores of the queries, (Q, G).
        bank: scores of the bank's queries for the same gallery, (B, G).
        beta: the sharpness; the authors' function has 20.

    Offline bilingual word vectors (Smith et al., 2017), arXiv 1702.03859; with query and gallery banks in Balance Act
    (2023), arXiv 2310.11612.
    """
    wide = scores("inverted-softmax", "similarity", similarity, (None, None))
    others = _bank("inverted-softmax", "bank", bank, similarity)
    beta = check.number("inverted-softmax", "beta", beta, 0.0)
    return invert(wide, others, beta).to(similarity.dtype)
