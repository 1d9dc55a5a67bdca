"""Retrieval with normalized scores between two tables of vectors, of which no whole matrix is ever held."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normkit import catalog, check
from normkit.columns import number_of
from normkit.inference._scores import largest, log_sums, nearest_mean, normal_rank, scores
from normkit.kinds.arrays import takes_arrays
from normkit.statistics import accurate, full_precision

NUMBERS = 2**22  # of one block of similarities: such memory is used again, where larger is fetched anew each time
BANKS = {
    None: 0,
    "inverted-softmax": 1,
    "dynamic-inverted-softmax": 1,
    "score-normalization": 1,
    "csls": 1,
    "mutual-proximity": 1,
    "dual-inverted-softmax": 2,
    "dual-dynamic-inverted-softmax": 2,
}
ROWS = 2**12  # queries of one block: with a million, NUMBERS left four items
BANK = 2**25  # numbers of one block of a bank's similarities, which has all rows of the bank
Rank = Callable[[Tensor], Callable[[Tensor, slice], Tensor]]  # for some items: of similarities, and which queries


class Retrieved(NamedTuple):
    """The best scores of each query, from the largest on, and which items have them; (Q, count) both."""

    scores: Tensor
    index: Tensor  # type: ignore[assignment]


@takes_arrays
@torch.no_grad()
def retrieve(
    queries: Tensor, gallery: Tensor, *banks: Tensor, method: str | None = None, count: int = 10, **options: Any
) -> Retrieved:
    """Return the best items of each query by inner product, normalized by a method of the catalogue.

    The numbers are those of the method on the whole matrix, in the widest type of the vectors. Products of half
    precision are in float32, in which those of long vectors do not overflow. The gallery is gone through in blocks,
    twice where only queries near to hubs are normalized, and where something of each query over the whole gallery is
    needed.

    >>> gallery = torch.eye(3)
    >>> retrieve(gallery[:2], gallery, gallery, method="inverted-softmax", count=1).index
    tensor([[0],
            [1]])

    Args:
        queries: vectors (Q, D); of length 1 for cosines.
        gallery: vectors (G, D).
        banks: vectors (B, D) of what the method takes behind the similarities, in its order: of a bank of queries, then
            one of gallery items, or of a background.
        method: one of the inverted softmaxes, ``"csls"``, ``"mutual-proximity"``, ``"score-normalization"``, or None:
            inner products.
        count: how many items of each query are returned.
        options: of the method.
    """
    check.choice("retrieve", "method", method, tuple(BANKS))
    _vectors("queries", queries, queries)
    _vectors("gallery", gallery, queries)
    if len(banks) != BANKS[method]:
        raise ValueError(f"retrieve: banks must be {BANKS[method]} for method={method!r}, not {len(banks)}")
    for bank in banks:
        _vectors("banks", bank, queries)
        if not len(bank):
            raise ValueError("retrieve: banks must not be empty")
    dtype = functools.reduce(torch.promote_types, (x.dtype for x in (queries, gallery, *banks)))
    queries, gallery = queries.to(dtype), gallery.to(dtype)
    banks = tuple(accurate(bank.to(dtype)) for bank in banks)  # once: each block of the gallery meets a whole bank
    count = min(check.size("retrieve", "count", count), len(gallery))
    given: dict[str, Any] = {}
    if method is None:
        hits = _search(queries, gallery, count)
    else:
        defaults = {key: option.default for key, option in catalog.card(method).signature.parameters.items()}
        normalize = catalog.create(method, **options)
        normalize(*[queries.new_zeros(1, len(banks[0]))] * (1 + len(banks)))  # refuses options before the work
        given = {**defaults, **normalize.keywords}
        hits = _normalized(method, queries, gallery, banks, count, given)
    hits = Retrieved(hits.scores.to(dtype), hits.index)
    share = (~hits.scores.isfinite()).double().mean().item() if check.readable(hits.scores) else 0
    if share > 0:
        words = ", ".join(f"{key}={beta}" for key, beta in _sharpness(given).items())
        better = "shorter vectors" if dtype is torch.float64 else "vectors of a wider type, or shorter ones"
        text = f"{share:.1%} of the scores are beyond {dtype}; take {better}"
        plain = "dynamic" in str(method) and _have_long_products(queries, gallery, hits)
        if words and not plain and not hits.scores.isnan().any():
            text = f"{words} makes {share:.1%} of the scores infinite in {dtype}; take a smaller one"
        warnings.warn(f"retrieve: {text}", stacklevel=4)
    return hits


def _have_long_products(queries: Tensor, gallery: Tensor, hits: Retrieved) -> bool:
    """Whether plain products of queries and of items whose scores are infinite are that too."""
    infinite = hits.scores.isinf()
    rows = infinite.any(1)
    items = hits.index[rows, infinite[rows].int().argmax(1)]
    return bool((accurate(queries[rows]) * accurate(gallery[items])).sum(1).to(queries.dtype).isinf().any())


def _sharpness(given: dict) -> dict[str, float]:
    return {key: given[key] for key in ("beta", "beta_query", "beta_gallery") if key in given}


def _normalized(
    method: str, queries: Tensor, gallery: Tensor, banks: tuple[Tensor, ...], count: int, given: dict
) -> Retrieved:
    """The best items, with scores in the accurate type."""
    most, betas = max(map(len, banks)), list(_sharpness(given).values())
    if method == "score-normalization":
        return _less_background(queries, gallery, banks[0], count, given)
    if method == "csls":
        return _search(queries, gallery, count, _less_nearest(queries, gallery, banks[0], given["k"]), most)
    if "dynamic" in method:
        near = _near_hubs(queries, gallery, banks, given["top"])
        hits = _search(queries, gallery, count, _products(banks, betas, near), most)
        return Retrieved(torch.where(near.any(1, keepdim=True), _from_rank(hits.scores), hits.scores), hits.index)
    by_normal_laws = method == "mutual-proximity"
    rank = _normal_ranks(queries, gallery, banks[0]) if by_normal_laws else _exponents(banks, betas)
    hits = _search(queries, gallery, count, rank, most)
    return Retrieved(hits.scores.exp(), hits.index)


def _vectors(name: str, x: Tensor, queries: Tensor) -> None:
    scores("retrieve", name, x, (None, None if x is queries else queries.shape[1]), queries)
    infinite = int(x.isinf().sum()) if check.readable(x) else 0
    if infinite:
        raise ValueError(f"retrieve: {name} must be finite, but has {number_of(infinite, 'infinite value')}")


def _less_background(queries: Tensor, gallery: Tensor, background: Tensor, count: int, given: dict) -> Retrieved:
    """Normalized by a number of each query, which leaves its order alone."""
    hits = _search(queries, gallery, count)
    near = _search(queries, background, min(given["rank"], len(background))).scores
    return Retrieved(catalog.create("score-normalization", **given)(hits.scores, near), hits.index)


def _less_nearest(queries: Tensor, gallery: Tensor, bank: Tensor, k: int) -> Rank:
    """What turns similarities to a block of the gallery into those less what is nearest to query and item."""
    own = _search(queries, gallery, min(k, len(gallery))).scores.mean(1, keepdim=True)

    def rank(items: Tensor) -> Callable[[Tensor, slice], Tensor]:
        others = nearest_mean(_similarity(bank, items), k, 0)
        return lambda similarity, part: similarity.mul_(2).sub_(own[part]).sub_(others)

    return rank


def _normal_ranks(queries: Tensor, gallery: Tensor, bank: Tensor) -> Rank:
    """What turns similarities into logarithms of chances under the normal laws of query and item.

    Mean and variance of a query's scores follow from those of the gallery: q m, and q C q.
    """
    wide = gallery.double()
    mean, centered = wide.mean(0), wide - wide.mean(0)
    spread = centered.mT @ centered / len(wide)
    mine = queries.double()
    dtype = accurate(queries[:0]).dtype
    own = [(mine @ mean)[:, None].to(dtype), ((mine @ spread) * mine).sum(1, keepdim=True).to(dtype)]

    def rank(items: Tensor) -> Callable[[Tensor, slice], Tensor]:
        others = _similarity(bank, items)
        law = others.mean(0), others.var(0, correction=0)
        return lambda similarity, part: (
            normal_rank(similarity, *(value[part] for value in own)) + normal_rank(similarity, *law)
        )

    return rank


def _exponents(banks: tuple[Tensor, ...], betas: list[float]) -> Rank:
    """What turns similarities (Q, block) to a block of the gallery into logarithms of scores, whose order is theirs."""

    def rank(items: Tensor) -> Callable[[Tensor, slice], Tensor]:
        less = [_logsumexp(_similarity(bank, items), beta) for bank, beta in zip(banks, betas, strict=True)]
        return lambda similarity, part: functools.reduce(Tensor.sub_, less, similarity.mul_(sum(betas)))

    return rank


def _logsumexp(x: Tensor, beta: float) -> Tensor:
    """That of each column of ``beta x``; ``x`` is written to."""
    most = beta * x.amax(0)
    return torch.add(-most, x, alpha=beta, out=x).exp_().sum(0).log_().add_(most)


def _near_hubs(queries: Tensor, gallery: Tensor, banks: tuple[Tensor, ...], top: int) -> Tensor:
    """Whether each query's best item is a hub of each bank, (Q, banks)."""
    best = _search(queries, gallery, 1).index
    return torch.cat([torch.isin(best, _search(bank, gallery, min(top, len(gallery))).index) for bank in banks], 1)


def _products(banks: tuple[Tensor, ...], betas: list[float], near: Tensor) -> Rank:
    """What turns similarities into scores that are normalized for banks that a query is near to a hub of.

    Those are given by their ranks: an exponential may be 0 where another factor decides the order.
    """

    def rank(items: Tensor) -> Callable[[Tensor, slice], Tensor]:
        less = [log_sums(_similarity(bank, items), beta) for bank, beta in zip(banks, betas, strict=True)]

        def normalize(similarity: Tensor, part: slice) -> Tensor:
            for flags in itertools.product((False, True), repeat=len(banks)):
                rows = (near[part] == near.new_tensor(flags)).all(1).nonzero().flatten()
                own = similarity[rows]
                product = own ** flags.count(False)
                if any(flags):
                    scaled = own.mul_(sum(itertools.compress(betas, flags)))
                    product = _as_rank(product, functools.reduce(Tensor.sub_, itertools.compress(less, flags), scaled))
                similarity[rows] = product
            return similarity

        return normalize

    return rank


def _as_rank(factor: Tensor, exponents: Tensor) -> Tensor:
    """Numbers in the order of ``factor exp(exponents)``, which neither overflow nor round to 0."""
    logs = exponents.add_(factor.abs().log_())
    size = 1 + logs.abs()
    return torch.where(logs > 0, size, 1 / size).mul_(factor.sign())


def _from_rank(x: Tensor) -> Tensor:
    """The product of a rank."""
    size = x.abs()
    return x.sign() * torch.where(size > 1, size - 1, 1 - 1 / size).exp()


def _similarity(rows: Tensor, items: Tensor) -> Tensor:
    """Inner products (rows, items) in the accurate type, which is that of the methods."""
    with full_precision(rows):
        return accurate(rows) @ accurate(items).T


def _search(rows: Tensor, gallery: Tensor, top: int, rank: Rank | None = None, bank: int = 0) -> Retrieved:
    """The best items of each row, block by block; ``bank`` is how many rows each item is compared with beside these."""
    parts = [slice(at, at + ROWS) for at in range(0, max(len(rows), 1), ROWS)]
    none = [accurate(rows[part, :0]) for part in parts]
    best = [Retrieved(own, own.long()) for own in none]
    block = max(1, min(NUMBERS // max(min(len(rows), ROWS), 1), BANK // max(bank, 1)))
    for start in range(0, len(gallery), block):
        items = gallery[start : start + block]
        normalize = None if rank is None else rank(items)
        for number, part in enumerate(parts):
            similarity = _similarity(rows[part], items)
            similarity = similarity if normalize is None else normalize(similarity, part)
            best[number] = _better(best[number], similarity, start, top)
    return Retrieved(torch.cat([own.scores for own in best]), torch.cat([own.index for own in best]))


def _better(best: Retrieved, similarity: Tensor, start: int, top: int) -> Retrieved:
    """The best of those so far and of the items from ``start`` on."""
    value, index = largest(similarity, top)
    value, index = torch.cat([best.scores, value], 1), torch.cat([best.index, index + start], 1)
    value, order = largest(value, top)
    return Retrieved(value, index.gather(1, order))
