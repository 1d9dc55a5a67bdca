"""Which module reads which in a model: its graph from an example, in which modules that matter are single steps.

``torch.export`` is asked first; where it fails, ``torch.fx``. What moves numbers without changing them (a view, a
transpose, a flatten, a mean over positions) is followed by letting marks go through it, one for each channel.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_map

from normkit.parameters import tensors_in
from normkit.surgery.recognition.specimen import locate, quiet

MOVES = {  # what moves numbers, or averages over positions
    *("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand"),
    *("permute", "transpose", "swapaxes", "movedim", "t", "flip", "roll"),
    *("slice", "select", "narrow", "index_select"),
    *("mean", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
}
KEEPS = {  # what gives what it is given
    *("clone", "contiguous", "alias", "detach", "lift_fresh_copy", "to", "_to_copy", "dropout", "feature_dropout"),
}
AS_ANOTHER = {"reshape_as": "reshape", "view_as": "view", "expand_as": "expand"}
ADDS = {**dict.fromkeys(("add", "add_", "iadd"), 1), **dict.fromkeys(("sub", "sub_", "isub"), -1)}
LAYERS: dict[type[nn.Module], str] = {
    **dict.fromkeys((nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d), "dropout"),
    nn.Flatten: "flatten",
    nn.Unflatten: "unflatten",
}
SOME = 12  # what a size that depends on the data is taken for, as whoever splits it mostly can with this one
DEPTH = 6  # how deep results are looked into for tensors


class Untraced(ValueError):
    """No graph of the model could be made."""


class Stays(Exception):
    """Why a site is left alone."""


@dataclass(eq=False)
class Call:
    """One call of a module: what it reads from elsewhere, and those of its results that are read elsewhere."""

    site: str
    inputs: list[fx.Node] = field(default_factory=list)
    outputs: list[fx.Node] = field(default_factory=list)
    own: set[fx.Node] = field(default_factory=set)


def arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments by place and by name that an example stands for."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example), {}) if isinstance(example, tuple | list) else ((example,), {})


class _Flat(nn.Module):
    """A model that returns its tensors and nothing else."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **named: Any) -> tuple[Tensor, ...]:
        """Call the model."""
        return tuple(tensors_in(self.model(*args, **named), DEPTH))


class Graph:
    """The graph of a model in evaluation.

    Args:
        model: the model; it is copied.
        example: an input: a tensor, a tuple of arguments or a dictionary of named ones.
        sites: the modules whose calls are single steps.
    """

    def __init__(self, model: nn.Module, example: Any, sites: Collection[str]):
        self.model = model
        self.one = {
            id(part): name for name, part in reversed(list(model.named_modules()))
        }  # of several names, the first
        self.sites = {self.one[id(model.get_submodule(site))] for site in sites}
        work = copy.deepcopy(model).eval()
        for site in self.sites:
            if hasattr(work.get_submodule(site), "add_norm"):  # who adds and normalizes in one pass calls no module
                work.get_submodule(site).register_forward_hook(_look_on)
        with quiet(), torch.no_grad():
            self.graph, owner, self.tensors = _graph(work, example, self)
        self.names, self.reads = dict[int, list[str]](), dict[int, list[tuple[fx.Node, str]]]()
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self.names.setdefault(id(parameter), []).append(name)
        for node, name in self.tensors.items():
            self.reads.setdefault(id(getattr(*locate(model, name), None)), []).append((node, name))
        self.by = self._calls_of(owner)
        self.calls = list(dict.fromkeys(self.by.values()))
        order = {node: at for at, node in enumerate(self.graph.nodes)}
        for call in self.calls:
            nodes = sorted(call.own, key=order.__getitem__)
            read = [n for node in nodes for n in node.all_input_nodes]
            call.inputs = list(dict.fromkeys(n for n in read if n not in call.own and n not in self.tensors))
            call.outputs = [n for n in nodes if any(u not in call.own for u in n.users)]

    def _calls_of(self, owner: Mapping[fx.Node, tuple[str, Any]]) -> dict[fx.Node, Call]:
        """The call that each node belongs to, of those that belong to one."""
        calls: dict[Any, Call] = {}
        by: dict[fx.Node, Call] = {}
        for node in self.graph.nodes:
            if node in owner:
                site, key = owner[node]
                by[node] = calls.setdefault(key, Call(site))
                by[node].own.add(node)
        return by

    def site_of(self, path: str) -> str | None:
        """The name of a site that a path leads to."""
        try:
            name = self.one.get(id(self.model.get_submodule(path)))
        except AttributeError:
            return None
        return name if name in self.sites else None

    def call(self, site: str) -> Call:
        """The only call of a module, with one input and one result, or why there is none such."""
        name = self.one[id(self.model.get_submodule(site))]
        calls = [call for call in self.calls if call.site == name]
        if len(calls) != 1:
            raise Stays(f"{name} is called {len(calls)} times")
        if len(calls[0].inputs) != 1 or len(calls[0].outputs) != 1:
            raise Stays(f"{name} reads {len(calls[0].inputs)} results and gives {len(calls[0].outputs)}")
        return calls[0]

    def alone(self, site: str) -> Call:
        """The only call of a module whose tensors no other call reads."""
        call = self.call(site)
        held = [id(t) for t in self.model.get_submodule(site).parameters()]
        for node, name in (read for one in held for read in self.reads.get(one, ())):
            if any(user not in call.own for user in node.users):
                raise Stays(f"{name} is read elsewhere too")
        for names in map(self.names.__getitem__, held):
            if len({self.one[id(self.model.get_submodule(name.rpartition(".")[0]))] for name in names}) > 1:
                raise Stays(f"{names[0]} is tied to {names[-1]}")
        return call

    def forget(self, call: Call) -> None:
        """Take a module with one input and one result out of the graph, as if it gave what it reads."""
        call.outputs[0].replace_all_uses_with(call.inputs[0], delete_user_cb=lambda user: user not in call.own)
        for node in reversed([n for n in self.graph.nodes if n in call.own]):
            self.graph.erase_node(node)
        self.calls.remove(call)
        for other in self.calls:
            other.inputs = [call.inputs[0] if n is call.outputs[0] else n for n in other.inputs]

    def readers(self, node: fx.Node, marks: Tensor) -> list[tuple[Call, Tensor]]:
        """The calls that read a result, moved but unchanged, with the marks as they arrive; else :class:`Stays`."""
        readers: list[tuple[Call, Tensor]] = []
        for user in node.users:
            if user in self.by:
                call = self.by[user]
                if call.inputs != [node]:
                    raise Stays(f"{call.site} reads it and more besides")
                if all(call is not other for other, _ in readers):
                    readers.append((call, marks))
            else:
                readers += self.readers(user, move_marks(user, node, marks, self.model))
        return readers

    def source(self, node: fx.Node) -> tuple[Call, fx.Node]:
        """The call whose result arrives at a node, moved but unchanged, and read by no other; else :class:`Stays`."""
        while node not in self.by:
            if word(node, self.model) not in MOVES | KEEPS or not node.all_input_nodes:
                raise Stays(f"it reads the result of {word(node, self.model)}")
            if self._read_by_several(node):
                raise Stays("what it reads is read elsewhere too")
            node = node.all_input_nodes[0]
        if self._read_by_several(node):
            raise Stays(f"{self.by[node].site}, which it reads, is read elsewhere too")
        return self.by[node], node

    def beside(self, call: Call) -> Iterator[tuple[Call, int]]:
        """The calls that read what a call reads, whose results only a sum reads with its result.

        With each comes the sign that the result of this call has there next to the other's.
        """
        node, sign = call.outputs[0], 1
        while len(node.users) == 1:
            (user,) = node.users
            kind = word(user, self.model)
            if kind in ADDS and not user.kwargs and len(user.args) == 2 and user.args[0] is not user.args[1]:
                signs = dict(zip(user.args, (1, ADDS[kind]), strict=True))
                sign *= signs.pop(node)
                for other, own in signs.items():
                    for term, within in self._terms(other, own):
                        if (reader := self.by[term]).inputs == call.inputs:
                            yield reader, sign * within
            elif kind not in KEEPS:
                return
            node = user

    def _terms(self, node: Any, sign: int) -> Iterator[tuple[fx.Node, int]]:
        """The results of calls that a sum, which has no other reader, is made of, and the sign of each."""
        if not isinstance(node, fx.Node) or self._read_by_several(node):
            return
        kind = word(node, self.model)
        if node in self.by:
            yield node, sign
        elif kind in ADDS and not node.kwargs and len(set(node.args)) == len(node.args):  # nothing is added to itself
            for part, own in zip(node.args, (1, ADDS[kind]), strict=False):
                yield from self._terms(part, sign * own)
        elif kind in KEEPS:
            yield from self._terms(node.all_input_nodes[0], sign)

    def _read_by_several(self, node: fx.Node) -> bool:
        """Whether more than one call, or step outside of calls, reads a result."""
        return len({id(self.by.get(user, user)) for user in node.users}) > 1


def _look_on(*_: Any) -> None:
    """A hook, by which a module is watched, and so called as one."""


def _graph(
    model: nn.Module, example: Any, flow: Graph
) -> tuple[fx.Graph, dict[fx.Node, tuple[str, Any]], dict[fx.Node, str]]:
    """The graph, of each node the site and the call that it belongs to, and the names of the tensors that it reads."""
    args, named = arguments(example)
    try:
        program = torch.export.export(_Flat(model), args, named, strict=False)
    except Exception as error:
        return _by_fx(model, example, flow, error)
    for node in program.graph.nodes:
        node.meta["val"] = tree_map(_with_sizes, node.meta.get("val"))
    _simplify(program.graph)
    owner: dict[fx.Node, tuple[str, Any]] = {}
    for node in program.graph.nodes:
        for key, (path, _) in node.meta.get("nn_module_stack", {}).items():
            site = flow.site_of(path.removeprefix("model").removeprefix("."))
            if site is not None and node.op == "call_function":
                owner[node] = site, key
                break
    signature = program.graph_signature
    held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    nodes = {node.name: node for node in program.graph.nodes}
    return program.graph, owner, {nodes[name]: full.removeprefix("model.") for name, full in held.items()}


def _with_sizes(value: Any) -> Any:
    """A number in the place of a size that depends on the data, and a tensor of such sizes without numbers."""
    if isinstance(value, torch.SymInt):
        size = value.node.expr
        return int(size.subs(dict.fromkeys(size.free_symbols, SOME)))
    if torch.is_tensor(value) and any(type(n) is not int for n in value.shape):
        return torch.empty([_with_sizes(n) for n in value.shape], dtype=value.dtype, device="meta")
    return value


def _simplify(graph: fx.Graph) -> None:
    """Leave out what only checks, and write shapes that are taken from another result as numbers."""
    for node in reversed(list(graph.nodes)):
        if node.op != "call_function":
            continue
        value = node.meta.get("val")
        if not node.users and not torch.is_tensor(value):
            graph.erase_node(node)
        elif word_of(node.target) == "to" and value.dtype == node.args[0].meta["val"].dtype:
            node.replace_all_uses_with(node.args[0])  # it gives what it is given, and whoever has that reads this
            graph.erase_node(node)
        elif word_of(node.target) in AS_ANOTHER:
            node.target = getattr(torch.ops.aten, AS_ANOTHER[word_of(node.target)]).default
            node.args = (node.args[0], list(node.meta["val"].shape))


def _by_fx(model: nn.Module, example: Any, flow: Graph, before: Exception):
    class Tracer(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return flow.site_of(module_qualified_name) is not None or super().is_leaf_module(m, module_qualified_name)

    args, named = arguments(example)
    try:
        if named:
            raise TypeError("an example with names")
        graph = Tracer().trace(model)
        _Values(fx.GraphModule(model, graph), garbage_collect_values=False).run(*args)
    except Exception as error:
        lines = [(str(e).strip().splitlines() or [type(e).__name__])[0][:160] for e in (before, error)]
        raise Untraced(
            f"the model cannot be traced with this example: torch.export: {lines[0]}; torch.fx: {lines[1]}"
        ) from error
    owner: dict[fx.Node, tuple[str, Any]] = {}
    for node in graph.nodes:
        site = flow.site_of(str(node.target)) if node.op == "call_module" else None
        if site is not None:
            owner[node] = site, node
    return graph, owner, {node: str(node.target) for node in graph.nodes if node.op == "get_attr"}


class _Values(fx.Interpreter):
    """Notes what each step gives."""

    def run_node(self, n: fx.Node) -> Any:
        """Run one step."""
        n.meta["val"] = value = super().run_node(n)
        return value


def word(node: fx.Node, model: nn.Module) -> str:
    """What a step is called: an operator, a function, a method or the class of a layer."""
    if node.op == "call_module":
        layer = model.get_submodule(str(node.target))
        return LAYERS.get(type(layer), type(layer).__name__)
    if node.op in ("placeholder", "get_attr", "output"):
        return {"placeholder": "the input", "get_attr": "a tensor", "output": "the output"}[node.op]
    return word_of(node.target)


def word_of(target: Any) -> str:
    """What an operator, a function or a method is called."""
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    return name.partition(".")[0]


def move_marks(node: fx.Node, source: fx.Node, marks: Tensor, model: nn.Module) -> Tensor:
    """The marks behind one step, if it moves numbers and does not change them."""
    name = word(node, model)
    if name in KEEPS:
        return marks
    if name not in MOVES:
        raise Stays(f"it is read by {name}")

    def substitute(value: Any) -> Any:
        if value is source:
            return marks
        known = value.meta.get("val")
        if torch.is_tensor(known):
            raise Stays(f"it is read by {name} with another tensor")
        return known

    if node.op == "call_module":
        return model.get_submodule(str(node.target))(marks)
    args: Any = fx.map_arg(node.args, substitute)
    named: Any = fx.map_arg(node.kwargs, substitute)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **named)
    return node.target(*args, **named)  # type: ignore[operator]


def _numbers(count: int) -> Tensor:
    """A number of its own for each channel, such that a mean of some is none of them."""
    return 1 + torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu")


def mark_channels(node: fx.Node, axis: int) -> Tensor:
    """A tensor of a result's shape with a number of its own for each channel."""
    shape = node.meta["val"].shape
    return _numbers(shape[axis]).view([-1 if a == axis % len(shape) else 1 for a in range(len(shape))]).expand(shape)


def which(marks: Tensor, count: int) -> Tensor:
    """The channel whose mark stands at each place; :class:`Stays` where that is none's."""
    ordered, order = _numbers(count).sort()
    at = torch.searchsorted(ordered, marks.contiguous() - 1e-13).clamp(max=count - 1)
    if ((marks - ordered[at]).abs() > 1e-12).any():
        raise Stays("the channels are mixed before they are read")
    return order[at]


def channels(marks: Tensor, axis: int, count: int) -> Tensor:
    """The channel that is behind each place of an axis; :class:`Stays` where there are several."""
    rows = which(marks.movedim(axis, 0).unsqueeze(-1).flatten(1), count)
    if (rows != rows[:, :1]).any():
        raise Stays("the channels are mixed before they are read")
    return rows[:, 0]
