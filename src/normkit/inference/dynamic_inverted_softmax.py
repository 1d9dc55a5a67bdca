"""The dynamic inverted softmax: only for queries whose best item is a hub."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import bank as _bank
from normkit.inference._scores import dynamic, scores


@method(
    "dynamic-inverted-softmax",
    paper="Cross Modal Retrieval with Querybank Normalisation (Bogolin et al., 2022), arXiv 2112.12777",
    shape="N G",
    over="B",
    inputs={"bank": "B G"},
    aliases={"querybank-normalization": {}},
)
def dynamic_inverted_softmax(similarity: Tensor, bank: Tensor, *, beta: float = 20.0, top: int = 1) -> Tensor:
    """Take the inverted softmax of a query's scores where its best item is a hub of the bank, else leave them.

    For retrieval in which some items come up for far too many queries, with a bank that may be small or of another kind
    than the queries. Where rows are to be compared, ``inverted-softmax`` treats them all alike; ``csls`` has no
    sharpness to choose.

    Hubs are the items that are among the ``top`` best of at least one row of the bank.

        out[q] = exp(beta similarity[q]) / sum_b exp(beta bank[b])    if the best item of q is a hub, else similarity[q]

    The rows are on two scales: the ranking inside a row is what counts, rows cannot be compared. Of equally good items
    the first is the best.

    Args:
        similarity: scores of the queries, (Q, G).
        bank: scores of the bank's queries for the same gallery, (B, G).
        beta: the sharpness.
        top: how many of each row of the bank are hubs.

    Cross Modal Retrieval with Querybank Normalisation (Bogolin et al., 2022), arXiv 2112.12777.

    Differs from the authors' code in: what is given is not written to.
    """
    owner = "dynamic-inverted-softmax"
    wide, others = scores(owner, "similarity", similarity, (None, None)), _bank(owner, "bank", bank, similarity)
    beta, top = check.number(owner, "beta", beta, 0.0), check.size(owner, "top", top)
    return dynamic(wide, others, beta, top).to(similarity.dtype)
