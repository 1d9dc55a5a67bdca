"""CSLS: cross-domain similarity local scaling."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import bank as _bank
from normkit.inference._scores import nearest_mean, scores


@method(
    "csls",
    paper="Word Translation Without Parallel Data (Conneau et al., 2018), arXiv 1710.04087",
    shape="N G",
    over="G B",
    inputs={"bank": "B G"},
    example={"k": 2},
    invariant=("shift of a query's scores",),
    evidence="equations",
)
def csls(similarity: Tensor, bank: Tensor, *, k: int = 10) -> Tensor:
    """Subtract from twice a score how near the query and the item come to what is nearest to each.

    For retrieval with hubs: an item that is near to everything loses what it has in common with its k nearest queries.
    ``inverted-softmax`` weighs the whole bank instead, and has a sharpness to choose.

    With the means of the k largest scores, of the query over the gallery and of the item over a bank of queries,

        out[q, g] = 2 similarity[q, g] - r_q - r_g

    The authors' bank is the whole source vocabulary, and scores are cosines. The gallery must be whole, since r_q is
    taken over it.

    Args:
        similarity: scores of the queries, (Q, G).
        bank: scores of the bank's queries for the same gallery, (B, G).
        k: how many of the nearest count; all where there are fewer. The authors have 10.

    Word Translation Without Parallel Data (Conneau et al., 2018), arXiv 1710.04087.
    """
    wide = scores("csls", "similarity", similarity, (None, None))
    others = _bank("csls", "bank", bank, similarity)
    k = check.size("csls", "k", k)
    if not similarity.numel():
        return similarity.clone()
    output = 2 * wide - nearest_mean(wide, k, 1)[:, None] - nearest_mean(others, k, 0)
    return output.to(similarity.dtype)
