"""Mutual proximity: the chance that query and item are each nearer to the other than to the rest."""

from __future__ import annotations

from torch import Tensor

from normkit.catalog import method
from normkit.inference._scores import bank as _bank
from normkit.inference._scores import normal_rank, scores


@method(
    "mutual-proximity",
    paper="Local and Global Scaling Reduce Hubs in Space (Schnitzer et al., 2012), JMLR 13",
    shape="N G",
    over="G B",
    inputs={"bank": "B G"},
    invariant=("scale of all scores", "shift of all scores"),
    evidence="equations",
)
def mutual_proximity(similarity: Tensor, bank: Tensor) -> Tensor:
    """Turn a score into the chance that it is larger than those of its query, and larger than those of its item.

    For retrieval with hubs: an item that is near to everything has large scores throughout, and each of them counts
    little.

    Scores of a query over the gallery, and of an item over a bank of queries, are taken for independent and normal,
    with their mean and standard deviation (over n). The paper does so where it works with such estimates.

        out[q, g] = Phi((similarity[q, g] - m_q) / s_q) Phi((similarity[q, g] - m_g) / s_g)

    Where all scores are equal that factor is 1/2. The paper has distances among one set of objects, which a bank of the
    queries themselves comes to; the gallery must be whole.

    Args:
        similarity: scores of the queries, (Q, G).
        bank: scores of the bank's queries for the same gallery, (B, G).

    Local and Global Scaling Reduce Hubs in Space (Schnitzer et al., 2012), JMLR 13.
    """
    wide = scores("mutual-proximity", "similarity", similarity, (None, None))
    others = _bank("mutual-proximity", "bank", bank, similarity)
    if not similarity.numel():
        return similarity.clone()
    own = normal_rank(wide, wide.mean(1, keepdim=True), wide.var(1, correction=0, keepdim=True))
    log_chance = own + normal_rank(wide, others.mean(0), others.var(0, correction=0))
    return log_chance.exp().to(similarity.dtype)
