"""Routers of experts, found by what they compute.

One matrix and a few short vectors say what sizes a router may have; numbers that it holds say what arguments.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.agreement import (
    NEAR,
    Flat,
    Handed,
    Tabled,
    agree,
    build,
    call,
    double_numbers,
    epsilons,
    factors_of,
    far_apart,
    inputs,
    match_of,
    numbers,
    plain_numbers,
)
from normkit.surgery.recognition.match import Match

SCORES = ("softmax", "sigmoid", "sqrt-softplus")
CLOSE, UNSURE = 1e-5, 0.1  # experts are as good as each other; for what share of the tokens at most
HANDED = "as a whole, its selection bias handed in beside the tokens"
TABLED = "by its weights of experts that stand in a table of token numbers"


def find(
    module: nn.Module, work: nn.Module, matrix: str, shape: tuple[int, ...], vectors: Mapping[str, Tensor]
) -> Match | None:
    """Return what router a module is; ``work`` is a copy in float64 with drawn numbers."""
    for way in _takes(module, work, *shape):
        match = _router(module, way, matrix, shape, vectors)
        if match is not None:
            return match
    return None


def _takes(module: nn.Module, work: nn.Module, count: int, dim: int) -> Iterator[nn.Module]:
    """The ways in which a copy takes tokens: of several axes or of one, with a bias beside them or without.

    One that multiplies in float32 alone is taken there.
    """
    first = next(inputs((dim,), torch.float64))
    ways: list[nn.Module] = [work]
    if specimen.further(module)[1]:
        ways.append(Handed(work, numbers(0, count, size=0.3)))
        tables = {name: t for name, t in module.named_buffers() if t.dtype is torch.int64 and t.dim() == 2}
        ways += [Tabled(work, name, count) for name, t in tables.items() if len(t) and 0 < t.shape[1] <= count]
    for way in itertools.chain.from_iterable((way, Flat(way)) for way in ways):
        if call(way.eval(), first) is not None:
            yield way
            continue
        way = way.float()
        if call(way, first.float()) is not None:
            yield way
        way.double()


def _dense(weights: Tensor, experts: Tensor, count: int) -> Tensor:
    return weights.new_zeros(*experts.shape[:-1], count).scatter(-1, experts, weights)


def _routes_of(outputs: list[Tensor], x: Tensor, count: int, shared: int = 0) -> tuple[Tensor, Tensor] | None:
    """Experts and weights of all (tokens, count) in what a router returned; None where there are none.

    Weights of shared experts, the last ones, are returned behind the others'.
    """
    tokens = x[..., 0].numel()
    if shared:
        return _with_shared(outputs, x, count, shared)
    whole = [t for t in outputs if t.dtype in (torch.int64, torch.int32) and t.dim() > 1]
    if not whole:
        return _weights_alone(outputs, tokens, count)
    if len(whole) != 1 or not _numbers_experts(whole[0], tokens, count):
        return None
    experts = whole[0].long().reshape(tokens, -1)
    candidates = (_weights(t, experts, count) for t in reversed(outputs) if t.is_floating_point() and t.dim() > 1)
    weights = next((own for own in candidates if own is not None), None)
    return None if weights is None else (experts, weights)


def _numbers_experts(whole: Tensor, tokens: int, count: int) -> bool:
    """Whether each row of whole numbers has experts of one token, each of them once."""
    if not 0 < whole.shape[-1] <= count or whole.numel() != tokens * whole.shape[-1]:
        return False
    ordered = whole.sort(-1).values
    return bool(ordered.min() >= 0 and ordered.max() < count and (ordered.diff(dim=-1) > 0).all())


def _weights(t: Tensor, experts: Tensor, count: int) -> Tensor | None:
    """The weights of all experts where a tensor has them, or those of the numbered experts alone; else None."""
    tokens, several = experts.shape
    if t.shape[-1] == several != count and t.numel() == experts.numel():
        return _dense(t.reshape(experts.shape), experts, count)
    if t.shape[-1] != count or t.numel() != tokens * count:
        return None
    row = t.reshape(tokens, count)
    others = row.scatter(-1, experts, 0)
    return None if others.any() else row


def _with_shared(outputs: list[Tensor], x: Tensor, count: int, shared: int) -> tuple[Tensor, Tensor] | None:
    for i, behind in enumerate(outputs):
        if behind.is_floating_point() and behind.dim() > 1 and behind.shape[-1] == shared:
            first = _routes_of(outputs[:i] + [t for t in outputs[i:] if not t.is_floating_point()], x, count - shared)
            if first is not None and behind.numel() == len(first[0]) * shared:
                last = torch.arange(count - shared, count).expand(len(first[0]), -1)
                both = torch.cat([first[1], behind.reshape(-1, shared).to(first[1].dtype)], -1)
                return torch.cat([first[0], last], -1), both
    return None


def _weights_alone(outputs: list[Tensor], tokens: int, count: int) -> tuple[Tensor, Tensor] | None:
    """The same where only weights are returned, as many of them in each row, and 0 elsewhere."""
    for t in outputs:
        if not t.is_floating_point() or t.shape[-1:] != (count,) or t.numel() != tokens * count:
            continue
        row = t.reshape(tokens, count)
        several = (row != 0).sum(-1)
        if (several == several[0]).all() and 0 < several[0] < count:
            return (row != 0).to(torch.int64).topk(int(several[0]), -1).indices, row
    return None


def _sure(ours: Any, x: Tensor, *sides: list[Tensor]) -> tuple[list[Tensor], ...]:
    """Both sides without the few tokens for which rounding may choose other experts."""
    _, choice = ours._scores(x.reshape(-1, x.shape[-1]))
    best = choice.sort(-1, descending=True).values
    near = best[:, ours.top_k - ours.shared - 1 :].diff(dim=-1)[:, :1].abs() < CLOSE * best.abs().amax()
    if near.numel() == 0 or near.float().mean() > UNSURE:
        return sides
    return tuple([t.masked_fill(near, 0) for t in side] for side in sides)


def _router(
    module: nn.Module, work: nn.Module, matrix: str, shape: tuple[int, ...], vectors: Mapping[str, Tensor]
) -> Match | None:
    count, dim = shape
    x = next(inputs((dim,), next(iter(specimen.tensors(work).values())).dtype))
    outputs = call(work, x)
    marks = _marks(module, "shared", count - 1)
    if outputs is None:
        return None
    for shared in (0, *marks):
        first = _routes_of(outputs, x, count, shared)
        match = None if first is None else _of_dialect(module, work, matrix, shape, vectors, x, first, shared)
        if match is not None:
            return match
    return None


def _of_dialect(
    module: nn.Module,
    work: nn.Module,
    matrix: str,
    shape: tuple[int, ...],
    vectors: Mapping[str, Tensor],
    x: Tensor,
    first: tuple[Tensor, Tensor],
    shared: int,
) -> Match | None:
    """What router has the experts and weights that a module returned first, and all others."""
    count, dim = shape
    sides = Sides(work, count, shared)
    sizes = {name: t.numel() for name, t in vectors.items()} | ({"": count} if sides.handed else {})
    for kwargs, others in _dialects(module, sizes, count, dim, shared):
        if sides.handed and others.get("selection_bias") != "":
            continue
        kwargs |= {"dim": dim, "experts": count, "top_k": first[0].shape[-1]}
        carried = {"weight": matrix, **others}
        scale = sides.scale(build("router", kwargs, carried, work), x, *first)
        if scale is None:
            continue
        kwargs["scale"] = scale
        if error := _agree(work, sides, kwargs, carried, x):
            return match_of(module, "router", kwargs, carried, error, how=sides.how)
    return None


class Sides:
    """A module's results and those of our router, read alike: weights of all experts, and which are chosen."""

    def __init__(self, work: nn.Module, count: int, shared: int):
        self.inner = work.module if isinstance(work, Flat) else work
        self.count, self.shared = count, shared
        self.handed, self.tabled = isinstance(self.inner, Handed), isinstance(self.inner, Tabled)
        self.how = HANDED if self.handed else TABLED if self.tabled else "as a whole"

    def choice(self, experts: Tensor, dtype: torch.dtype) -> Tensor:
        """1 where an expert is chosen, else 0."""
        return _dense(torch.ones_like(experts), experts, self.count).to(dtype)

    def theirs(self, results: list[Tensor], x: Tensor) -> list[Tensor] | None:
        """Read what a module returned for tokens."""
        routes = _routes_of(results, x, self.count, self.shared)
        return None if routes is None else [routes[1], self.choice(routes[0], x.dtype)]

    def ours(self, router: Any, x: Tensor) -> list[Tensor]:
        """Call our router, by the table's experts where a table has them."""
        x = x.flatten(0, -2)
        experts = self.inner.rows(x) if self.tabled else None  # type: ignore[operator]
        weights, experts = router(x) if experts is None else (router.weigh(x, experts), experts)
        return [_dense(weights, experts, self.count), self.choice(experts, x.dtype)]

    @torch.no_grad()
    def scale(self, router: nn.Module | None, x: Tensor, experts: Tensor, weights: Tensor) -> float | None:
        """By what our weights are multiplied to be a module's; None where other experts are chosen, or none fits."""
        if router is None:
            return None
        own, choice = self.ours(router, x)
        scale = float((weights.sum() / own.sum()).item())
        near = 0 < scale < math.inf and torch.allclose(own * scale, weights.to(x.dtype), rtol=1e-5)
        return _round(scale) if near and torch.equal(choice, self.choice(experts, x.dtype)) else None


def _agree(
    work: nn.Module, sides: Sides, kwargs: Mapping[str, Any], carried: Mapping[str, str], x: Tensor
) -> dict[str, float]:
    """How far a router of these arguments is from a module's; {} where they are not the same.

    The scale was worked out and is none of the module's own numbers: it must fit numbers twice as large too.
    """
    larger = double_numbers(work)
    ours, other = (build("router", kwargs, carried, one) for one in (work, larger))
    if (
        ours is None
        or other is None
        or not (error := agree(work, ours, sides.ours, sides.theirs, (x.shape[-1],), _sure))
    ):
        return {}
    on = (work, ours, _edges(sides.ours, ours, x)), (larger, other, x)
    return error if all(far_apart(a, b, sides.ours, sides.theirs, z, _sure) <= NEAR[x.dtype] for a, b, z in on) else {}


def _edges(ours_of: Callable[[nn.Module, Tensor], list[Tensor]], ours: Any, x: Tensor) -> Tensor:
    """Tokens on both sides of where a router begins to choose others, between pairs of tokens."""
    first, last = (numbers(seed, 1, 60, x.shape[-1], dtype=x.dtype) for seed in (101, 102))
    with torch.no_grad():
        experts = ours_of(ours, first)[1]
        low, high = torch.zeros_like(first[..., :1]), torch.ones_like(first[..., :1])
        for _ in range(10):
            middle = (low + high) / 2
            same = (ours_of(ours, first.lerp(last, middle))[1] == experts).all(-1).view(1, -1, 1)
            low, high = torch.where(same, middle, low), torch.where(same, high, middle)
    return torch.cat([first.lerp(last, low), first.lerp(last, high)], 1)


def _dialects(
    module: nn.Module, sizes: Mapping[str, int], count: int, dim: int, shared: int
) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """The arguments that a router of a module's numbers may have, and the vectors that it reads, by their sizes."""
    routed = count - shared
    selecting = [None, *(name for name, size in sizes.items() if size == routed)]
    of_all = [None, *(name for name, size in sizes.items() if size == count)]
    factors = [*of_all, *(name for name, size in sizes.items() if size == 1)]
    gains = [None, *(name for name, size in sizes.items() if size == dim)]
    read = itertools.product(of_all, selecting, gains, factors)
    for (groups, kept), (bias, selection, gain, factor) in itertools.product(_groupings(module, routed), read):
        names = {"bias": bias, "selection_bias": selection, "gain": gain, "expert_scale": factor}
        carried = {ours: name for ours, name in names.items() if name is not None}
        if len({*carried.values()}) < len(carried):
            continue
        plain: dict[str, Any] = {"bias": bias is not None, "selection_bias": selection is not None, "shared": shared}
        plain |= {"groups": groups, "kept_groups": kept} if groups > 1 else {}
        plain |= {"input_norm": gain is not None, "expert_scale": factor is not None}
        ways = _ways(module, groups, selection, gain)
        for values in itertools.product(*ways.values()):
            yield {**plain, **dict(zip(ways, values, strict=True))}, carried


def _ways(module: nn.Module, groups: int, selection: str | None, gain: str | None) -> dict[str, Sequence[Any]]:
    """What is tried of the arguments that no vector tells."""
    return {
        "score": SCORES,
        "renormalize": (True, False),
        "group_score": ("top2", "max") if groups > 1 else ("top2",),
        "choose_by": ("scores", "logits") if selection is not None else ("scores",),
        "logit_scale": factors_of(module),
        "eps": epsilons(module, 1e-6, 1e-5) if gain is not None else (1e-6,),
    }


def _groupings(module: nn.Module, routed: int) -> list[tuple[int, int]]:
    """In how many groups experts may be, and how many groups are kept, by the module's own numbers."""
    marks = _marks(module, "group", routed)
    return [(1, 1), *((g, kept) for g in marks for kept in marks if g > 1 and routed % g == 0 and kept < g)]


def _marks(module: nn.Module, word: str, most: int) -> list[int]:
    """The whole numbers that a module holds under names with a word in them."""
    return sorted({v for k, v in plain_numbers(module, int).items() if word in k.lower() and 0 < v <= most})


def _round(scale: float) -> float:
    """The short number that a scale is."""
    short = float(f"{scale:.6g}")
    return short if abs(short - scale) <= 1e-6 * scale else scale
