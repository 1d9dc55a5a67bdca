"""Routers of experts, found by what they compute.

One matrix and a few short vectors say what sizes a router may have; numbers that it holds say what arguments.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.agreement import (
    Flat,
    Handed,
    agree,
    build,
    call,
    inputs,
    match_of,
    numbers,
    plain_numbers,
)
from normkit.surgery.recognition.match import Match

SCORES = ("softmax", "sigmoid", "sqrt-softplus")
CLOSE, UNSURE = 1e-5, 0.1  # experts are as good as each other; for what share of the tokens at most
HANDED = "as a whole, its selection bias handed in beside the tokens"


def find(
    module: nn.Module, work: nn.Module, matrix: str, shape: tuple[int, ...], vectors: Mapping[str, Tensor]
) -> Match | None:
    """Return what router a module is; ``work`` is a copy in float64 with drawn numbers."""
    for taken in _takes(module, work, *shape):
        match = _router(module, taken, matrix, shape, vectors)
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


def _routed(made: list[Tensor], x: Tensor, count: int) -> tuple[Tensor, Tensor] | None:
    """Experts and weights of all (tokens, count) in what a router returned; None where there are none."""
    tokens = x[..., 0].numel()
    whole = [t for t in made if t.dtype in (torch.int64, torch.int32) and t.dim() > 1]
    if not whole:
        return _unnumbered(made, tokens, count)
    if len(whole) != 1 or whole[0].numel() % tokens or not 0 < whole[0].shape[-1] <= count:
        return None
    experts = whole[0].long().reshape(-1, whole[0].shape[-1])
    if len(experts) != tokens or experts.min() < 0 or experts.max() >= count:
        return None
    if (experts.sort(-1).values.diff(dim=-1) == 0).any():
        return None
    for t in reversed(made):
        if not t.is_floating_point() or t.dim() < 2:
            continue
        if t.shape[-1] == experts.shape[-1] and t.numel() == experts.numel() and t.shape[-1] != count:
            return experts, _dense(t.reshape(experts.shape), experts, count)
        if t.shape[-1] == count and t.numel() == tokens * count:
            row = t.reshape(tokens, count)
            left = _dense(torch.ones_like(experts, dtype=t.dtype), experts, count) == 0
            if (row[left] == 0).all():
                return experts, row
    return None


def _unnumbered(made: list[Tensor], tokens: int, count: int) -> tuple[Tensor, Tensor] | None:
    """The same where only weights are returned, as many of them in each row, and 0 elsewhere."""
    for t in made:
        if not t.is_floating_point() or t.shape[-1:] != (count,) or t.numel() != tokens * count:
            continue
        row = t.reshape(tokens, count)
        chosen = (row != 0).sum(-1)
        if (chosen == chosen[0]).all() and 0 < chosen[0] < count:
            return (row != 0).to(torch.int64).topk(int(chosen[0]), -1).indices, row
    return None


def _sure(ours: Any, x: Tensor, *sides: list[Tensor]) -> tuple[list[Tensor], ...]:
    """Both sides without the few tokens for which rounding may choose other experts."""
    p = ours._scores(x.reshape(-1, x.shape[-1]))
    choice = p if ours.selection_bias is None else p + ours.selection_bias
    best = choice.sort(-1, descending=True).values
    near = best[:, ours.top_k - 1 :].diff(dim=-1)[:, :1].abs() < CLOSE * best.abs().amax()
    if near.numel() == 0 or near.float().mean() > UNSURE:
        return sides
    return tuple([t.masked_fill(near, 0) for t in side] for side in sides)


def _router(
    module: nn.Module, work: nn.Module, matrix: str, shape: tuple[int, ...], vectors: Mapping[str, Tensor]
) -> Match | None:
    count, dim = shape
    x = next(inputs((dim,), next(iter(specimen.tensors(work).values())).dtype))
    made = call(work, x)
    first = None if made is None else _routed(made, x, count)
    if first is None:
        return None

    def read(made: list[Tensor], x: Tensor) -> list[Tensor] | None:
        found = _routed(made, x, count)
        return None if found is None else [found[1], _dense(torch.ones_like(found[0]), found[0], count).to(x.dtype)]

    def ours_of(ours: nn.Module, x: Tensor) -> list[Tensor]:
        weights, experts = ours(x.reshape(-1, dim))
        return [_dense(weights, experts, count), _dense(torch.ones_like(experts), experts, count).to(x.dtype)]

    handed = isinstance(work.module if isinstance(work, Flat) else work, Handed)
    names = [*(name for name, t in vectors.items() if t.numel() == count), *([""] if handed else [])]
    for kwargs, others in _dialects(module, names, count):
        if handed and others.get("selection_bias") != "":
            continue
        kwargs |= {"dim": dim, "experts": count, "top_k": first[0].shape[-1]}
        carried = {"weight": matrix, **others}
        ours = build("router", kwargs, carried, work)
        if ours is None:
            continue
        with torch.no_grad():
            weights, chosen = ours_of(ours, x)
        if not torch.equal(chosen, _dense(torch.ones_like(first[0]), first[0], count).to(x.dtype)):
            continue
        scale = float((first[1].sum() / weights.sum()).item())
        if not 0 < scale < math.inf or not torch.allclose(weights * scale, first[1].to(x.dtype), rtol=1e-5):
            continue
        kwargs["scale"] = _round(scale)
        ours = build("router", kwargs, carried, work)
        error = {} if ours is None else agree(work, ours, ours_of, read, (dim,), _sure)
        if error:
            return match_of(module, "router", kwargs, carried, error, how=HANDED if handed else "as a whole")
    return None


def _dialects(module: nn.Module, fitting: list[str], count: int) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """The arguments that a router of a module's numbers may have, and the vectors that it reads."""
    marks = sorted({v for k, v in plain_numbers(module, int).items() if "group" in k.lower() and 0 < v <= count})
    grouped = [(g, kept) for g in marks for kept in marks if g > 1 and count % g == 0 and kept < g]
    for (groups, kept), bias, selection in itertools.product([(1, 1), *grouped], [None, *fitting], [None, *fitting]):
        if bias is not None and bias == selection:
            continue
        carried = {} if bias is None else {"bias": bias}
        carried |= {} if selection is None else {"selection_bias": selection}
        for score, renormalize, mark in itertools.product(SCORES, (True, False), ("top2", "max")):
            if groups == 1 and mark == "max":
                continue
            kwargs: dict[str, Any] = {"score": score, "renormalize": renormalize}
            kwargs |= {"bias": bias is not None, "selection_bias": selection is not None}
            yield kwargs | ({"groups": groups, "kept_groups": kept, "group_score": mark} if groups > 1 else {}), carried


def _round(scale: float) -> float:
    """The short number that a scale is."""
    short = float(f"{scale:.6g}")
    return short if abs(short - scale) <= 1e-6 * scale else scale
