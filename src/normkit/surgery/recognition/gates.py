"""Attention whose results are gated, or whose softmax has a sink, found by what it computes.

Of a copy, what its projections give and what its last matrix takes are listened to. Between the two must lie the core
of the catalogue: with any angles of queries and keys, any mask, in both modes and both exact types.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit import catalog
from normkit.ops.rope import rotate
from normkit.parameters import remove_after
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.agreement import (
    NEAR,
    apart,
    epsilons,
    factors_of,
    inputs,
    match_of,
    numbers,
    plain_numbers,
    result,
    worst,
)
from normkit.surgery.recognition.match import Match

MOST = 2**25  # numbers
HOW = "between its projections"
ANGLED, MASKED = "position_embeddings", frozenset({"attention_mask", "mask"})  # what modules call these


class Angles(NamedTuple):
    """How a module is handed cosines and sines: by which pairs features are turned, and whether each is there twice.

    used: a layer without positions is handed them too.
    """

    pairing: str = "halves"
    twice: bool = True
    used: bool = True

    def arguments(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """As the module takes them, with an axis of samples."""
        if not self.twice:
            return cos[None], sin[None]
        both = (t.repeat_interleave(2, -1) if self.pairing == "pairs" else torch.cat([t, t], -1) for t in (cos, sin))
        return tuple(t[None] for t in both)  # type: ignore[return-value]


ANGLES = (
    *(Angles(pairing, twice) for twice in (True, False) for pairing in ("halves", "pairs")),
    Angles(used=False),
)


class Takes(NamedTuple):
    """What a module takes beside tokens, by the names that it has for it: angles, masks, the tokens of the keys."""

    angles: bool
    masks: tuple[str, ...]
    other: str | None

    @classmethod
    def of(cls, module: nn.Module) -> Takes | None:
        """Read a signature; None where it must be handed more."""
        takes = list(inspect.signature(module.forward).parameters.values())[1:]
        names = [p.name for p in takes]
        needed = [p.name for p in takes if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        left = [name for name in needed if name != ANGLED and name not in MASKED]
        masks = tuple(name for name in names if name in MASKED)
        return cls(ANGLED in names, masks, left[0] if left else None) if len(left) < 2 else None


class Request(NamedTuple):
    """What a module is called with: tokens, those of the keys, angles, and which keys each query sees."""

    x: Tensor
    other: Tensor
    cos: Tensor
    sin: Tensor
    seen: Tensor

    @classmethod
    def draw(cls, x: Tensor, size: int, seed: int) -> Request:
        """Angles for heads of a size; each query sees itself and some of those before it."""
        batch, length, _ = x.shape
        turned = numbers(seed + 1, length, size // 2, dtype=x.dtype)
        seen = (numbers(seed + 2, batch, 1, length, length) > -0.5).tril() | torch.eye(length, dtype=torch.bool)
        return cls(x, numbers(seed + 3, *x.shape, dtype=x.dtype), turned.cos(), turned.sin(), seen)

    def named(self, takes: Takes, angles: Angles) -> dict[str, Any]:
        """The arguments beside the tokens, by the names that a module has for them."""
        hidden = torch.zeros(self.seen.shape, dtype=self.x.dtype)
        hidden.masked_fill_(~self.seen, torch.finfo(self.x.dtype).min)
        known: dict[str, Any] = {ANGLED: angles.arguments(self.cos, self.sin)} if takes.angles else {}
        known |= {} if takes.other is None else {takes.other: self.other}
        return known | dict.fromkeys(takes.masks, hidden)


class Record(NamedTuple):
    """What one call of a module let hear: the results of its projections, and what the last of them took.

    of_other: the projections of the keys' tokens.
    """

    projected: Mapping[str, Tensor]
    of_other: frozenset[str]
    changed: Sequence[tuple[Tensor, Tensor]]  # what its other layers took and gave
    joined: Tensor


class Roles(NamedTuple):
    """Which projection makes what, of how many heads; a gate may be the second half of each head of the queries.

    core: further arguments of the core.
    """

    heads: int
    size: int
    query: str
    key: str
    value: str
    gate: str | None
    output: str
    causal: bool
    core: tuple[tuple[str, Any], ...] = ()

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments of the core beside the size of a head."""
        return {"heads": self.heads, "causal": self.causal, **dict(self.core)}


def may_be(module: nn.Module) -> bool:
    """Whether it has the projections of attention, and a sink or a gate besides."""
    linears = {name: part for name, part in module.named_children() if isinstance(part, nn.Linear)}
    if not 4 <= len(linears) <= 5 or any(part.weight.is_meta for part in linears.values()):
        return False
    outputs = _outputs(linears)
    if not outputs or sum(p.numel() for p in module.parameters()) > MOST:
        return False
    sinks = [p for p in module._parameters.values() if p is not None]
    if len(linears) == 5 or sinks:
        return len(sinks) == (len(linears) == 4) and all(p.dim() == 1 for p in sinks)
    return any(part.out_features == 2 * linears[name].in_features for name in outputs for part in linears.values())


def _outputs(linears: Mapping[str, nn.Linear]) -> list[str]:
    """Which may be the last projection: what it gives, all others take."""
    return [
        name
        for name, last in reversed(list(linears.items()))
        if all(part.in_features == last.out_features for part in linears.values() if part is not last)
    ]


def find(module: nn.Module, work: nn.Module) -> Match | None:
    """Return what attention a module is; ``work`` is a copy in float64 with drawn numbers."""
    linears = {name: part for name, part in work.named_children() if isinstance(part, nn.Linear)}
    sink = next((name for name, p in work._parameters.items() if p is not None), None)
    takes = Takes.of(work)
    if takes is None:
        return None
    records: dict[Any, Record | None] = {}
    for roles in _roles(module, linears, takes, sink):
        x = next(inputs((linears[roles.output].out_features,), torch.float64))
        request = Request.draw(x, roles.size, 0)
        for angles in ANGLES if takes.angles else ANGLES[-1:]:
            key = roles.output, roles.size, angles
            if key not in records:
                records[key] = _record(work, roles.output, request, request.named(takes, angles))
            if not _far(work, records[key], request, roles, angles, takes, sink) <= NEAR[torch.float64]:
                continue
            error = _agree(work, roles, angles, takes, sink, x.shape[-1])
            if error:
                kwargs = {"head_dim": roles.size, **roles.kwargs}
                return match_of(module, _name(sink), kwargs, {} if sink is None else {"sink": sink}, error, how=HOW)
    return None


def _roles(module: nn.Module, linears: Mapping[str, nn.Linear], takes: Takes, sink: str | None) -> Iterator[Roles]:
    """Which projections may make what, in which numbers of heads, and with which arguments of the core."""
    causal = (False,) if takes.masks else (True, False)
    for output in _outputs(linears):
        width = linears[output].in_features
        rows = {name: part.out_features for name, part in linears.items() if name != output}
        for heads in _head_counts(module, width, sink):
            size = width // heads
            inputs = _projections(rows, width, heads, sink is None)
            for (query, key, value, gate), hides, core in itertools.product(inputs, causal, _cores(module, size, sink)):
                yield Roles(heads, size, query, key, value, gate, output, hides, core)


def _head_counts(module: nn.Module, width: int, sink: str | None) -> list[int]:
    """In how many heads of even size features may be cut: by the numbers that a module holds, or by its sink."""
    known = {n for n in plain_numbers(module, int).values() if n > 0}
    counts = known | {width // n for n in known} if sink is None else {module.get_parameter(sink).numel()}
    return [n for n in sorted(counts) if n and width % (2 * n) == 0]


def _projections(
    rows: Mapping[str, int], width: int, heads: int, gated: bool
) -> Iterator[tuple[str, str, str, str | None]]:
    """Which projections may be the query, key, value and gate, by their rows; the query's may hold the gate's."""
    for query, key, value, *gates in itertools.permutations(rows):
        gate = gates[0] if gates else query if gated else None
        wide = rows[query] == (2 * width if gate == query else width)
        paired = rows[key] == rows[value] and rows[key] % (width // heads) == 0 and width % rows[key] == 0
        if wide and paired and (gate in (None, query) or rows[gate] in (width, heads)):
            yield query, key, value, gate


def _cores(module: nn.Module, size: int, sink: str | None) -> list[tuple[tuple[str, Any], ...]]:
    """The arguments of a core that a module's numbers suggest: its scale, and the norm before a gate."""
    factors = factors_of(module)
    scales = dict.fromkeys([*(factor * size**-0.5 for factor in factors), *factors])
    cores: list[tuple[tuple[str, Any], ...]] = [(("scale", scale),) if i else () for i, scale in enumerate(scales)]
    if sink is not None or all(isinstance(part, nn.Linear) for part in module.children()):
        return cores
    return [*cores, *((*core, ("norm", True), ("eps", eps)) for core in cores for eps in epsilons(module, 1e-6))]


def _record(work: nn.Module, output: str, request: Request, arguments: Mapping[str, Any]) -> Record | None:
    """Call a copy, and listen; None where it takes no such input, or its parts do not stand where attention's do."""
    parts = dict(work.named_children())
    calls: dict[str, list[Any]] = {name: [] for name in parts}
    hooks = [
        part.register_forward_hook(lambda part, took, gave, name=name: calls[name].append(_heard(took, gave)))
        for name, part in parts.items()
    ]
    x = request.x
    with remove_after(hooks):
        y = result(lambda x: specimen.first(work(x, **arguments)), x)
    if y is None:
        return None
    linears = {name: calls.pop(name) for name, part in parts.items() if isinstance(part, nn.Linear)}
    once = all(len(own) == 1 and len(own[0]) == 2 for own in linears.values())
    if not once:
        return None
    joined, written = linears.pop(output)[0]
    projected = {name: own[0][1] for name, own in linears.items()}
    of_other = frozenset(name for name, own in linears.items() if _same(own[0][0], request.other))
    of_x = all(_same(own[0][0], x) for name, own in linears.items() if name not in of_other)
    if not of_x or y.shape != x.shape or not _same(y, written) or joined.dim() != 3:
        return None
    changed = [one for own in calls.values() for one in own if len(one) == 2]
    return Record(projected, of_other, [one for one in changed if all(isinstance(t, Tensor) for t in one)], joined)


def _heard(took: Sequence[Any], gave: Any) -> tuple[Any, ...]:
    """What a part took first, and what it gave, as it was before anybody changed it in place."""
    return *took[:1], gave.clone() if isinstance(gave, Tensor) else gave


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b)


def _cut_heads(z: Tensor, record: Record, heads: int) -> Tensor:
    """Cut a projection's result into heads (B, heads, T, size), as the norm behind it gives it where there is one."""
    z = z.unflatten(-1, (heads, -1)) if z.dim() == 3 else z
    for took, gave in record.changed:
        if took.numel() != z.numel() or gave.shape != took.shape:
            continue
        for turn in (False, True):
            other = z.transpose(1, 2) if turn else z
            if _same(took, other.reshape(took.shape)):
                z = gave.reshape(other.shape)
                return z if turn else z.transpose(1, 2)
    return z.transpose(1, 2)


def _far(
    work: nn.Module,
    record: Record | None,
    request: Request,
    roles: Roles,
    angles: Angles,
    takes: Takes,
    sink: str | None,
) -> float:
    """How far the core is apart from what lies between a copy's projections."""
    if record is None or record.of_other != ({roles.key, roles.value} if takes.other is not None else set()):
        return math.inf
    q, k, v, further = _cut(record, roles, request.x.dtype)
    if takes.angles and angles.used:
        q, k = (rotate(z, (request.cos, request.sin), angles.pairing) for z in (q, k))
    k, v = (z.repeat_interleave(roles.heads // z.shape[1], 1) for z in (k, v))
    further |= {"mask": request.seen} if takes.masks else {}
    core = catalog.create(_name(sink), roles.size, **roles.kwargs).to(q.dtype)
    with torch.no_grad():
        if sink is not None:
            core.sink.copy_(work.get_parameter(sink))
        want = core(q, k, v, **further)
    return apart([record.joined], [want.transpose(1, 2).flatten(2)])


def _name(sink: str | None) -> str:
    """The core with a sink, or the one with a gate."""
    return "gated-attention" if sink is None else "attention-sinks"


def _cut(record: Record, roles: Roles, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Queries, keys and values in heads (B, heads, T, size), and the gate where there is one."""
    query, gate = record.projected[roles.query], None
    if roles.gate == roles.query:
        query, gate = query.unflatten(-1, (roles.heads, -1)).chunk(2, -1)
    elif roles.gate is not None:
        gate = record.projected[roles.gate].unflatten(-1, (roles.heads, -1))
    k, v = (record.projected[name] for name in (roles.key, roles.value))
    k, v = (_cut_heads(z, record, z.shape[-1] // roles.size).to(dtype) for z in (k, v))
    further = {} if gate is None else {"gate": gate.transpose(1, 2).to(dtype)}
    return _cut_heads(query, record, roles.heads).to(dtype), k, v, further


def _agree(work: nn.Module, roles: Roles, angles: Angles, takes: Takes, sink: str | None, dim: int) -> dict[str, float]:
    """How far both are apart, in both exact types and modes; {} where they are not the same."""

    def rounds(dtype: torch.dtype, mode: bool) -> Iterator[float]:
        theirs = copy.deepcopy(work).to(dtype).train(mode)
        for i, x in enumerate(inputs((dim,), dtype)):
            request = Request.draw(x, roles.size, 3 * i)
            record = _record(theirs, roles.output, request, request.named(takes, angles))
            yield _far(theirs, record, request, roles, angles, takes, sink)

    return worst(NEAR, rounds)
