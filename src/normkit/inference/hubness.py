"""Hubness: how unevenly the items of a gallery are found."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores
from normkit.kinds import beside


class Hubness(NamedTuple):
    """Skewness over the items found at least once, and over all; the share never found; how often the first is."""

    skewness: Tensor
    full_skewness: Tensor
    antihubs: Tensor
    largest: Tensor


@method(
    "hubness",
    paper="Hubs in Space: Popular Nearest Neighbors in High-Dimensional Data (Radovanović et al., 2010); Balance "
    "Act: Mitigating Hubness in Cross-Modal Retrieval with Query and Gallery Banks (Wang et al., 2023), arXiv "
    "2310.11612",
    shape="N G",
    over="N",
    example={"top": 2},
    invariant=("any increasing map of the scores",),
)
@torch.no_grad()
def hubness(similarity: Tensor, *, top: int = 10) -> Hubness:
    """Count how often each item is among the best of a query, and measure how skewed the counts are.

    For retrieval in many dimensions, where some items are near to everything and many to nothing. It only measures;
    ``csls``, ``inverted-softmax`` and ``mutual-proximity`` mend it.

    With m2 and m3 the central moments of the counts,

        skewness = m3 / m2^(3/2),    0 where all counts are equal

    over the items that were found at least once, as the authors of Balance Act count, and over all, the usual one.

    Args:
        similarity: scores of the queries, (Q, G), at least one of each.
        top: how many of a query's items are its best; all where there are fewer.

    Beside it: ``counted(best, items)`` is the same of each query's best items, (Q, top), where no matrix is held.

    Returns ``skewness``, ``full_skewness``, ``antihubs``, the share of items never found, and ``largest``, how often
    the item found most often is, in float32 at least. No gradient. Of equal scores any may be taken.

    Hubs in Space (Radovanović et al., 2010).
    """
    wide = scores("hubness", "similarity", similarity, (None, None))
    top = check.size("hubness", "top", top)
    if not similarity.numel():
        raise ValueError(f"hubness: similarity must not be empty, but its shape is {tuple(similarity.shape)}")
    measures = counted(wide.topk(min(top, wide.shape[1]), dim=1).indices, wide.shape[1])
    own = Hubness(*(value.to(similarity.dtype) for value in measures))
    return own._replace(largest=measures.largest.to(wide.dtype))


@beside(hubness)
@torch.no_grad()
def counted(best: Tensor, items: int) -> Hubness:
    """Return the same, in float64, from each query's best items (Q, top) of so many, as ``retrieve`` finds them."""
    items = check.size("hubness", "items", items)
    check.index("hubness", "best", best, (None, None), items, best)
    if not best.numel():
        raise ValueError(f"hubness: best must not be empty, but its shape is {tuple(best.shape)}")
    count = torch.bincount(best.flatten(), minlength=items).double()
    return Hubness(_skewness(count[count > 0]), _skewness(count), (count == 0).double().mean(), count.max())


def _skewness(count: Tensor) -> Tensor:
    centered = count - count.mean()
    spread = centered.square().mean()
    return torch.where(spread > 0, centered.pow(3).mean() / torch.where(spread > 0, spread, 1).pow(1.5), 0)
