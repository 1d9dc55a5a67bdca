"""The dual dynamic inverted softmax: two banks, each only for queries whose best item is a hub of it."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import bank, dynamic, scores


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
    both = dynamic(wide, of_queries, beta_query, top) * dynamic(wide, of_gallery, beta_gallery, top)
    return both.to(similarity.dtype)
