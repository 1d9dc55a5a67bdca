"""What a module with a matrix computes as a whole: a router of experts, a connection of residual streams, its head.

One matrix and a few short vectors say what sizes it may have; numbers that it holds say what arguments. Each
candidate is compared on fresh inputs of several lengths and sizes, in both modes and in both exact types.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog
from normkit.residual.stream import Placement
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.match import Match

SCORES = ("softmax", "sigmoid", "sqrt-softplus")
LENGTHS = ((1, 7), (2, 3), (1, 1), (3, 19), (1, 40))  # the first is what candidates are tried on
SIZES = (1.0, 1e-2, 3.0)
NEAR = {torch.float64: 3e-6, torch.float32: 2e-4}  # of the largest; many round to float32 in every type
OWN = "normkit."
PARTS, ROWS = 3, 1024  # of what is looked at: modules, and rows of its matrix
Given = dict[str, Tensor]


def may_be_whole(module: nn.Module) -> bool:
    """Whether it is worth a look: few parts, a forward that is not torch's, one matrix of few rows, short vectors."""
    home = getattr(inspect.getattr_static(type(module), "forward", None), "__module__", None) or ""
    if home.startswith(("torch.nn.", OWN)) or sum(1 for _ in itertools.islice(module.modules(), PARTS + 1)) > PARTS:
        return False
    tensors = specimen.tensors(module).values()
    matrices = [t for t in tensors if _is_matrix(t)]
    if len(matrices) != 1 or matrices[0].is_meta or len(matrices[0]) > ROWS:
        return False
    short = all(t.numel() <= max(t.shape, default=1) for t in tensors if not _is_matrix(t))
    return short and not specimen.refusal(module)


def _is_matrix(tensor: Tensor) -> bool:
    return tensor.dim() == 2 and min(tensor.shape) > 1


def examine_whole(module: nn.Module) -> Match | None:
    """Return what a module is as a whole, or None where it is none of these."""
    if not may_be_whole(module):
        return None
    tensors = specimen.tensors(module)
    ((name, matrix),) = ((name, t) for name, t in tensors.items() if _is_matrix(t))
    vectors = {n: t for n, t in tensors.items() if n != name and t.dim()}
    with specimen.quiet():
        try:
            work = _drawn(module)
        except Exception:  # it cannot be copied
            return None
        for find, taken in ((_streams, work), (_router, work), (_router, _Flat(work))):
            match = find(module, taken, name, tuple(matrix.shape), vectors)
            if match is not None:
                return match
    return None


class _Flat(nn.Module):
    """A module that takes its tokens along one axis."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        """Call it with all tokens in a row."""
        return self.module(x.flatten(0, -2))


def _drawn(module: nn.Module) -> nn.Module:
    """A copy in float64 whose numbers all count."""
    work = copy.deepcopy(module).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in specimen.tensors(work).values():
            if tensor.is_floating_point():
                spread = tensor.shape[-1] ** -0.5 if tensor.dim() > 1 else 0.3
                start = 1.0 if tensor.dim() == 1 and (tensor.numel() in (1, 3)) else 0.0
                tensor.copy_(start + spread * torch.randn(tensor.shape, generator=generator, dtype=torch.float64))
    return work


def _inputs(own: tuple[int, ...], dtype: torch.dtype, only: int | None = None) -> Iterator[Tensor]:
    """Tokens of several lengths and sizes."""
    for i, (leading, size) in enumerate(itertools.product(LENGTHS, SIZES)):
        if only is not None and i >= only:
            return
        generator = torch.Generator().manual_seed(i + 1)
        yield (size * torch.randn((*leading, *own), generator=generator, dtype=torch.float64)).to(dtype)


def _call(work: nn.Module, x: Tensor) -> list[Tensor] | None:
    """What a module returns, as a list of tensors; None where it takes no such input."""
    before = x.clone()
    try:
        with torch.no_grad():
            made = work(x)
    except Exception:
        return None
    made = list(made) if isinstance(made, tuple | list) else [made]
    return made if made and all(isinstance(t, Tensor) for t in made) and torch.equal(before, x) else None


Ours = Callable[[Tensor], list[Tensor]]
Read = Callable[[list[Tensor], Tensor], "list[Tensor] | None"]
CLOSE, UNSURE = 1e-5, 0.1  # experts are as good as each other; for what share of the tokens at most


def _agree(
    work: nn.Module, ours: nn.Module, call: Callable, read: Read, own: tuple[int, ...], sure: Callable | None = None
) -> dict[str, float]:
    """How far both are apart, in both exact types and modes, relative to the largest number; {} where they are not."""
    apart: dict[str, float] = {}
    for dtype, mode in itertools.product(NEAR, (False, True)):
        theirs, mine = (copy.deepcopy(one).to(dtype).train(mode) for one in (work, ours))
        for x in _inputs(own, dtype):
            far = _far(theirs, mine, call, read, x, sure)
            if not far <= NEAR[dtype]:
                return {}
            key = str(dtype)[6:]
            apart[key] = max(apart.get(key, 0.0), far)
    return apart


def _far(
    theirs: nn.Module, ours: nn.Module, call: Callable, read: Read, x: Tensor, sure: Callable | None = None
) -> float:
    made = _call(theirs, x)
    given = None if made is None else read(made, x)
    if given is None:
        return math.inf
    with torch.no_grad():
        want = call(ours, x)
        given, want = sure(ours, x, given, want) if sure is not None else (given, want)
    far = 0.0
    for a, b in zip(given, want, strict=True):
        if a.shape != b.shape or not a.isfinite().all():
            return math.inf
        far = max(far, float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)))
    return far


def _numbers(module: nn.Module, kind: type) -> dict[str, Any]:
    """The plain numbers that a module, its parts and its configuration hold."""
    found: dict[str, Any] = {}
    for part in module.modules():
        for holder in (getattr(part, "config", None), part):
            if holder is not None and hasattr(holder, "__dict__"):
                found |= {k: v for k, v in vars(holder).items() if type(v) is kind}
    return found


# Routers.


def _dense(weights: Tensor, experts: Tensor, count: int) -> Tensor:
    return weights.new_zeros(*experts.shape[:-1], count).scatter(-1, experts, weights)


def _routed(made: list[Tensor], x: Tensor, count: int) -> tuple[Tensor, Tensor] | None:
    """Experts and weights of all (tokens, count) in what a router returned; None where there are none."""
    tokens = x[..., 0].numel()
    whole = [t for t in made if t.dtype in (torch.int64, torch.int32) and t.dim() > 1]
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
    x = next(_inputs((dim,), torch.float64))
    made = _call(work.eval(), x)
    first = None if made is None else _routed(made, x, count)
    if first is None:
        return None

    def read(made: list[Tensor], x: Tensor) -> list[Tensor] | None:
        found = _routed(made, x, count)
        return None if found is None else [found[1], _dense(torch.ones_like(found[0]), found[0], count).to(x.dtype)]

    def call(ours: nn.Module, x: Tensor) -> list[Tensor]:
        weights, experts = ours(x.reshape(-1, dim))
        return [_dense(weights, experts, count), _dense(torch.ones_like(experts), experts, count).to(x.dtype)]

    for kwargs, others in _dialects(module, vectors, count):
        kwargs |= {"dim": dim, "experts": count, "top_k": first[0].shape[-1]}
        carried = {"weight": matrix, **others}
        ours = _ours("router", kwargs, carried, work)
        if ours is None:
            continue
        with torch.no_grad():
            weights, chosen = call(ours, x)
        if not torch.equal(chosen, _dense(torch.ones_like(first[0]), first[0], count).to(x.dtype)):
            continue
        scale = float((first[1].sum() / weights.sum()).item())
        if not 0 < scale < math.inf or not torch.allclose(weights * scale, first[1].double(), rtol=1e-5):
            continue
        kwargs["scale"] = _round(scale)
        ours = _ours("router", kwargs, carried, work)
        error = {} if ours is None else _agree(work, ours, call, read, (dim,), _sure)
        if error:
            return _match(module, "router", kwargs, carried, error)
    return None


def _dialects(
    module: nn.Module, vectors: Mapping[str, Tensor], count: int
) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """The arguments that a router of a module's numbers may have, and the vectors that it reads."""
    fitting = [name for name, t in vectors.items() if t.numel() == count]
    marks = sorted({v for k, v in _numbers(module, int).items() if "group" in k.lower() and 0 < v <= count})
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


# Residual streams.


def _streams(
    module: nn.Module, work: nn.Module, matrix: str, shape: tuple[int, ...], vectors: Mapping[str, Tensor]
) -> Match | None:
    rows, width = shape
    n = round(math.sqrt(rows + 1)) - 1
    if n > 1 and n * (n + 2) == rows and width % n == 0:
        names = _named(vectors, {"bias": rows, "scale": 3})
        if names is not None:
            return _connection(module, work, {"weight": matrix, **names}, n, width // n)
    if rows > 1 and width % rows == 0:
        names = _named(vectors, {"bias": rows, "scale": 1})
        if names is not None:
            return _head(module, work, {"weight": matrix, **names}, rows, width // rows)
    return None


def _named(vectors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> dict[str, str] | None:
    """The vectors of these sizes, where each is the only one."""
    found: dict[str, str] = {}
    for ours, size in sizes.items():
        names = [name for name, t in vectors.items() if t.numel() == size]
        if len(names) != 1 or names[0] in found.values():
            return None
        found[ours] = names[0]
    return found


def _epsilons(module: nn.Module) -> list[float]:
    return [v for v in _named_so(_numbers(module, float), "eps", 1e-6) if 0 <= v < 0.1]


def _named_so(numbers: Mapping[str, Any], word: str, usual: Any) -> list[Any]:
    """Each number once, those first whose names have a word in them."""
    ordered = sorted(numbers, key=lambda name: word not in name.lower())
    return list(dict.fromkeys([*(numbers[name] for name in ordered), usual]))


def _connection(module: nn.Module, work: nn.Module, carried: dict[str, str], n: int, dim: int) -> Match | None:
    def read(made: list[Tensor], x: Tensor) -> list[Tensor] | None:
        by = {(n, n): None, (n,): None, (dim,): None}
        for t in made:
            key = (n, n) if t.shape == (*x.shape[:-2], n, n) else tuple(t.shape[-1:])
            if key not in by or by[key] is not None or t.shape[: x.dim() - 2] != x.shape[:-2]:
                return None
            by[key] = t  # type: ignore[assignment]
        return None if any(t is None for t in by.values()) or n == dim else list(by.values())  # type: ignore[arg-type]

    def call(ours: nn.Module, x: Tensor) -> list[Tensor]:
        read, mix, write = ours(x)
        return [mix, write, (read.unsqueeze(-1) * x).sum(-2)]

    x = next(_inputs((n, dim), torch.float64))
    made = _call(work.eval(), x)
    if made is None or read(made, x) is None:
        return None
    rounds = [v for v in _named_so(_numbers(module, int), "iter", 20) if 0 < v <= 1000]
    for iterations, eps in itertools.product(rounds, _epsilons(module)):
        kwargs = {"dim": dim, "streams": n, "iterations": iterations, "eps": eps}
        ours = _carried(Placement("mhc", **kwargs).get_submodule("connection").double(), carried, work)
        if _far(work, ours, call, read, x) <= NEAR[torch.float64]:
            error = _agree(work, ours, call, read, (n, dim))
            if error:
                made_of = _carried(Placement("mhc", **kwargs).get_submodule("connection"), carried, module)
                return _match(module, "mhc", kwargs, carried, error, made_of)
    return None


def _head(module: nn.Module, work: nn.Module, carried: dict[str, str], n: int, dim: int) -> Match | None:
    def read(made: list[Tensor], x: Tensor) -> list[Tensor] | None:
        return made if len(made) == 1 and made[0].shape == (*x.shape[:-2], dim) else None

    for eps in _epsilons(module):
        kwargs = {"dim": dim, "streams": n, "eps": eps}
        ours = _ours("mhc-head", kwargs, carried, work)
        error = {} if ours is None else _agree(work, ours, lambda ours, x: [ours(x)], read, (n, dim))
        if error:
            return _match(module, "mhc-head", kwargs, carried, error)
    return None


# What both have in common.


def _ours(name: str, kwargs: Mapping[str, Any], carried: Mapping[str, str], theirs: nn.Module) -> nn.Module | None:
    """A method with the numbers of a module; None where it takes no such arguments."""
    try:
        made = catalog.create(name, **kwargs)
    except (ValueError, TypeError):
        return None
    return _carried(made.to(next(iter(specimen.tensors(theirs).values())).dtype), carried, theirs)


@torch.no_grad()
def _carried(made: nn.Module, carried: Mapping[str, str], theirs: nn.Module) -> nn.Module:
    theirs = theirs.module if isinstance(theirs, _Flat) else theirs
    given, own = specimen.tensors(theirs), specimen.tensors(made)
    for ours, name in carried.items():
        own[ours].copy_(given[name].reshape(own[ours].shape))
    return made


def _match(
    module: nn.Module,
    name: str,
    kwargs: dict[str, Any],
    carried: dict[str, str],
    error: dict[str, float],
    made: nn.Module | None = None,
) -> Match:
    made = _ours(name, kwargs, carried, module) if made is None else made
    evidence = [f"as a whole, on {len(LENGTHS) * len(SIZES)} inputs in both modes, in float64 and float32"]
    assert made is not None
    return Match(
        type(module).__name__, name, kwargs, made.train(module.training), error, evidence, carried=carried, sized=True
    )
