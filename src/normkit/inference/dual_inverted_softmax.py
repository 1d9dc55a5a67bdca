"""The dual inverted softmax: normalized by a bank of queries and by a bank of gallery items."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import above_least, bank, log_sums, scores


@method(
    "dual-inverted-softmax",
    paper="Balance Act: Mitigating Hubness in Cross-Modal Retrieval with Query and Gallery Banks (Wang et al., 2023), "
    "arXiv 2310.11612",
    shape="N G",
    over="B",
    inputs={"query_bank": "B G", "gallery_bank": "T G"},
)
def dual_inverted_softmax(
    similarity: Tensor,
    query_bank: Tensor,
    gallery_bank: Tensor,
    *,
    beta_query: float = 1 / 1.99,
    beta_gallery: float = 3.0,
) -> Tensor:
    """Multiply two inverted softmaxes of each score, one over a bank of queries, one over a bank of gallery items.

    For hubs on both sides. With small or unrelated banks take ``dual-dynamic-inverted-softmax``.

    A row ranks as (beta_query + beta_gallery) similarity less the logarithms of both sums.

        out = exp(beta_query s) / sum_b exp(beta_query query_bank)
              times exp(beta_gallery s) / sum_b exp(beta_gallery gallery_bank)

    Args:
        similarity: s, scores of the queries, (Q, G).
        query_bank: scores of other queries for the same gallery, (B, G).
        gallery_bank: scores of other gallery items for the same gallery, (B', G).
        beta_query, beta_gallery: the sharpness of both, tuned for each data set by the authors.

    Balance Act (Wang et al., 2023), arXiv 2310.11612.

    Differs from the authors' code in: the queries' scores are used, where their wrapper passes the gallery bank's.
    """
    owner = "dual-inverted-softmax"
    wide = scores(owner, "similarity", similarity, (None, None))
    of_queries = bank(owner, "query_bank", query_bank, similarity)
    of_gallery = bank(owner, "gallery_bank", gallery_bank, similarity)
    beta_query = check.number(owner, "beta_query", beta_query, 0.0)
    beta_gallery = check.number(owner, "beta_gallery", beta_gallery, 0.0)
    both = log_sums(of_queries, beta_query) + log_sums(of_gallery, beta_gallery)
    return above_least(wide, beta_query + beta_gallery, both).to(similarity.dtype)
