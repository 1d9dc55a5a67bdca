"""Score normalization: similarities less how near a query comes to what is known to be wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores
from normkit.kinds import beside
from normkit.statistics import accurate

REDUCTIONS = ("min", "mean")


@method(
    "score-normalization",
    paper="Results and findings of the 2021 Image Similarity Challenge (Papakipos et al., 2022), arXiv 2202.04007",
    shape="N G",
    over="B",
    inputs={"background": "N B"},
    example={"rank": 2},
    invariant=("shift of a query's scores",),
)
def score_normalization(
    similarity: Tensor, background: Tensor, *, rank: int = 10, factor: float = 2.0, reduction: str = "min"
) -> Tensor:
    """Subtract from each score how near the query comes to things that are no match.

    For one threshold over all queries, as in copy detection: the order inside a query stays, the queries become
    comparable. With b_1 >= b_2 >= ... the query's scores of the background,

        out[q, g] = similarity[q, g] - factor n_q,    n_q = b_rank, or with "mean" the mean of b_1 .. b_rank

    Args:
        similarity: scores of the queries, (Q, G).
        background: scores of the same queries for a set without matches, (Q, B), such as the training set.
        rank: how many of the background count, at most B.
        factor: of the background.
        reduction: ``"min"``: the value at that rank; ``"mean"``.

    Beside it: ``level(background)`` is n (Q,), and ``augment(query, gallery, n)`` puts it into the vectors, so that a
    plain search by inner product gives these scores.

    Results and findings of the 2021 Image Similarity Challenge (Papakipos et al., 2022), arXiv 2202.04007.
    """
    wide = scores("score-normalization", "similarity", similarity, (None, None))
    scores("score-normalization", "background", background, (len(similarity), None), similarity)
    factor = check.number("score-normalization", "factor", factor)
    level_ = level(accurate(background), rank=rank, reduction=reduction)
    return (wide - factor * level_.unsqueeze(1)).to(similarity.dtype)


@beside(score_normalization)
def level(background: Tensor, *, rank: int = 10, reduction: str = "min") -> Tensor:
    """Return how near each query comes to a background (Q, B): (Q,)."""
    wide = scores("score-normalization", "background", background, (None, None))
    check.choice("score-normalization", "reduction", reduction, REDUCTIONS)
    rank = check.size("score-normalization", "rank", rank)
    if rank > background.shape[1]:
        raise ValueError(
            f"score-normalization: rank must be at most {background.shape[1]}, the background's items, not {rank}"
        )
    best = wide.topk(rank, dim=1).values
    return (best[:, -1] if reduction == "min" else best.mean(1)).to(background.dtype)


@beside(score_normalization)
def augment(query: Tensor, gallery: Tensor, n: Tensor, *, factor: float = 2.0) -> tuple[Tensor, Tensor]:
    """Return query (Q, D + 1) and gallery (G, D + 1) vectors whose inner products are the normalized scores."""
    scores("score-normalization", "query", query, (None, None))
    scores("score-normalization", "gallery", gallery, (None, query.shape[1]), query)
    scores("score-normalization", "n", n, (len(query),), query)
    factor = check.number("score-normalization", "factor", factor)
    moved = (-factor * n).to(query.dtype).unsqueeze(1)
    return torch.cat([query, moved], 1), torch.cat([gallery, gallery.new_ones(len(gallery), 1)], 1)
