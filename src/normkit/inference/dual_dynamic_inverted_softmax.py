"""The dual dynamic inverted softmax: two banks, each only for queries whose best item is a hub of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import above_least, bank, dynamic, log_sums, near_hubs, scores


@method(
    "dual-dynamic-inverted-softmax",
    paper="Balance Act: Mitigating Hubness in Cross-Modal Retrieval with Query and Gallery Banks (Wang et al., 2023), "
    "arXiv 2310.11612",
    shape="N G",
    over="B",
    inputs={"query_bank": "B G", "gallery_bank": "T G"},
)
def dual_dynamic_inverted_softmax(
    similarity: Tensor,
    query_bank: Tensor,
    gallery_bank: Tensor,
    *,
    beta_query: float = 1 / 1.99,
    beta_gallery: float = 3.0,
    top: int = 1,
) -> Tensor:
    """Multiply two dynamic inverted softmaxes, of a bank of queries and of a bank of gallery items.

    For retrieval in which some items come up for far too many queries, with banks of both sides that may be small or of
    another kind. Where scores may be negative, or without a bank of gallery items, take ``dynamic-inverted-softmax``.

    Safer than ``dual-inverted-softmax`` with small or unrelated banks: a query far from the hubs of a bank is not
    touched by it. One that neither touches has its scores squared, so that negative ones change their order, as the
    authors' product has it.

    Args:
        similarity: scores of the queries, (Q, G).
        query_bank: scores of other queries for the same gallery, (B, G).
        gallery_bank: scores of other gallery items for the same gallery, (B', G).
        beta_query, beta_gallery: the sharpness of both.
        top: how many of each row of a bank are hubs.

    Balance Act (Wang et al., 2023), arXiv 2310.11612.

    Differs from the authors' code in: the queries' scores are used, where their wrapper passes the gallery bank's.
    """
    owner = "dual-dynamic-inverted-softmax"
    wide = scores(owner, "similarity", similarity, (None, None))
    of_queries = bank(owner, "query_bank", query_bank, similarity)
    of_gallery = bank(owner, "gallery_bank", gallery_bank, similarity)
    beta_query = check.number(owner, "beta_query", beta_query, 0.0)
    beta_gallery = check.number(owner, "beta_gallery", beta_gallery, 0.0)
    top = check.size(owner, "top", top)
    if not (wide.numel() and check.readable(wide)):
        both = dynamic(wide, of_queries, beta_query, top) * dynamic(wide, of_gallery, beta_gallery, top)
        return both.to(similarity.dtype)
    return _by_rows(wide, ((of_queries, beta_query), (of_gallery, beta_gallery)), top).to(similarity.dtype)


def _by_rows(similarity: Tensor, banks: Sequence[tuple[Tensor, float]], top: int) -> Tensor:
    """The product, with one exponential where both banks touch a row, and none where neither does."""
    best, product = similarity.argmax(1), similarity * similarity
    near = torch.stack([near_hubs(best, bank, top) for bank, _ in banks])
    for touched in ((True, True), (True, False), (False, True)):
        rows = (near == torch.tensor(touched, device=near.device).unsqueeze(1)).all(0).nonzero().flatten()
        if len(rows):
            some = similarity[rows]
            taken = [given for given, flag in zip(banks, touched, strict=True) if flag]
            less = torch.stack([log_sums(bank, beta) for bank, beta in taken]).sum(0)
            value = above_least(some, sum(beta for _, beta in taken), less)
            product.index_copy_(0, rows, value if all(touched) else value * some)
    return product
