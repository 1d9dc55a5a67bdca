"""In what order a pre-norm transformer's norms are taken out: what reads each of them, and which of it are values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from normkit import check
from normkit.surgery.edits.layers import as_linear
from normkit.surgery.flow import KEEPS, Call, Graph, Stays, channels, mark_channels, move_marks, which, word

ATTENTION = "scaled_dot_product_attention"
PRODUCTS = ("matmul", "bmm")
PARTS = {"split", "split_with_sizes", "chunk", "unbind", "getitem", "tensor_split"}
SPECIAL = {"separator": 2, "first": 12}  # steps after the last norm
FEEDFORWARD, ATTENDING, FINAL = "feedforward", "attention", "final"


class Part(NamedTuple):
    """One norm of a model: what it stands before, the layers that read it, and of each the results that are values."""

    site: str
    role: str
    readers: list[str]
    values: dict[str, Tensor]


class Step(NamedTuple):
    """What happens once so many steps are done: to a norm, or to all."""

    at: int
    what: str
    site: str


def parts(flow: Graph, norms: Collection[str]) -> list[Part]:
    """The norms in the order in which they are called; :class:`Stays` says of one what else than layers reads it."""
    calls = [call for call in flow.calls if call.site in norms]
    entries = []
    for call in calls:
        flow.call(call.site)
        readers = _linears(flow, call)
        attends = [_attends(flow, reader) for reader in readers]
        values = {reader.site: own for reader in readers if (own := _values(flow, reader)).any()}
        last = not any(other is not call and _downstream(call, other) for other in calls)
        role = ATTENDING if any(attends) or values else FINAL if last else FEEDFORWARD
        entries.append(Part(call.site, role, [reader.site for reader in readers], values))
    return entries


def _linears(flow: Graph, call: Call) -> list[Call]:
    """The linear layers that read a norm, and nothing else does."""
    output = call.outputs[0]
    wide = output.meta["val"].shape[-1]
    try:
        readers = flow.readers(output, mark_channels(output, -1))
    except Stays as error:
        raise Stays(f"{call.site} is not read by layers alone: {error}") from error
    for reader, arrived in readers:
        linear = isinstance(as_linear(flow.model.get_submodule(reader.site)), nn.Linear)
        if not linear or not torch.equal(channels(arrived, -1, wide), torch.arange(wide, device="cpu")):
            raise Stays(f"{reader.site}, which reads {call.site}, is no linear layer on its features")
        flow.call(reader.site)
    if not readers:
        raise Stays(f"nobody reads {call.site}")
    return [reader for reader, _ in readers]


def timetable(order: Collection[Part], start: int, gaps: Sequence[int]) -> list[Step]:
    """The published order: before feedforwards; queries and keys, then values of attentions; the last; then specials.

    >>> values = {"v": torch.ones(4, dtype=torch.bool)}
    >>> order = [Part("a", ATTENDING, ["q", "v"], values), Part("b", FEEDFORWARD, ["up"], {}), Part("c", FINAL, [], {})]
    >>> [(step.at, step.what, step.site) for step in timetable(order, 20, (2, 2, 3))][:4]
    [(20, 'norm', 'b'), (22, 'norm', 'a'), (24, 'values', 'a'), (27, 'norm', 'c')]
    """
    if not isinstance(gaps, tuple | list) or len(gaps) != 3:
        raise ValueError(f"remove: gaps must be three numbers of steps, not {gaps!r}")
    rows: list[Step] = []
    at, gaps = check.size("remove", "start", start, least=0), [check.size("remove", "gaps", n, least=0) for n in gaps]
    for what, role, gap in zip(("norm", "norm", "values"), (FEEDFORWARD, ATTENDING, ATTENDING), gaps, strict=True):
        for part in order:
            if part.role == role and (what == "norm" or part.values):
                rows.append(Step(at, what, part.site))
                at += gap
    rows += [Step(at, "norm", part.site) for part in order if part.role == FINAL]
    return rows + [Step(at + after, kind, "") for kind, after in SPECIAL.items()]


def _downstream(call: Call, other: Call) -> bool:
    """Whether a call comes after another in what is computed of it."""
    nodes, todo = set(call.outputs), list(call.outputs)
    while todo:
        for user in todo.pop().users:
            if user in other.own:
                return True
            if user not in nodes:
                nodes.add(user)
                todo.append(user)
    return False


def _between(flow: Graph, nodes: Collection[fx.Node], forward: bool) -> Iterator[fx.Node]:
    """What is computed from some results, or what they are computed from, as far as the next layers."""
    between, todo = set(nodes), list(nodes)
    while todo:
        node = todo.pop()
        for other in node.users if forward else node.all_input_nodes:
            if other not in between and other not in flow.by:
                between.add(other)
                todo.append(other)
                yield other


def _attends(flow: Graph, reader: Call) -> bool:
    between = _between(flow, reader.outputs, True)
    return any(word(node, flow.model) in (ATTENTION, "softmax", "_softmax") for node in between)


def _values(flow: Graph, reader: Call) -> Tensor:
    """Of a layer's results those that attention averages."""
    if len(reader.outputs) != 1:
        return torch.zeros(0, dtype=torch.bool, device="cpu")
    output = reader.outputs[0]
    mask = torch.zeros(output.meta["val"].shape[-1], dtype=torch.bool, device="cpu")
    for marks in _averages(flow, output, mark_channels(output, -1)):
        try:
            mask[which(marks, len(mask)).unique()] = True
        except Stays:
            continue
    return mask


def _averages(flow: Graph, node: fx.Node, marks: Any) -> Iterator[Tensor]:
    """The marks as they arrive where attention takes its values."""
    for user in node.users:
        if user in flow.by:
            continue
        kind = word(user, flow.model)
        sources = user.args[2:3] if kind == ATTENTION else user.args[1:2] if kind in PRODUCTS else ()
        if node in sources and (kind == ATTENTION or _of_softmax(flow, user.args[0])):
            yield marks
        else:
            try:
                yield from _averages(flow, user, _past(flow, user, node, marks))
            except (Stays, TypeError, RuntimeError):
                continue


def _past(flow: Graph, user: fx.Node, node: fx.Node, marks: Any) -> Any:
    """The marks behind one step that moves numbers, takes some of them, or puts them behind an empty cache."""
    kind = word(user, flow.model)
    if kind == "cat" and all(not other.meta["val"].numel() for other in user.all_input_nodes if other is not node):
        return marks
    if kind in PARTS:
        return user.target(*fx.map_arg(user.args, lambda n: marks if n is node else n.meta["val"]))  # type: ignore[operator]
    return marks if kind in KEEPS else move_marks(user, node, marks, flow.model)


def _of_softmax(flow: Graph, node: Any) -> bool:
    before = [node, *_between(flow, [node], False)] if isinstance(node, fx.Node) else []
    return any(word(n, flow.model) in ("softmax", "_softmax") for n in before)
