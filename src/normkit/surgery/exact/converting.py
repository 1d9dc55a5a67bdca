"""The exact conversion of Pre-LN transformers: what writes to the residual stream is centred, layer norms are RMS."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from normkit import check
from normkit.activation.token.crmsnorm import CRMSNorm
from normkit.activation.token.rmsnorm import RMSNorm
from normkit.parameters import copy_model
from normkit.surgery import proof
from normkit.surgery.edits import replace_parts
from normkit.surgery.edits.changes import Change, Report, name_others, norm_words, ties_of, untie
from normkit.surgery.edits.layers import Centred, as_linear, like
from normkit.surgery.exact.pairs import fold_scale, is_plain, width
from normkit.surgery.flow import KEEPS, MOVES, Graph, Stays, channels, mark_channels, move_marks, word
from normkit.surgery.recognition.match import Match, is_layer_norm
from normkit.surgery.recognition.recognize import sized_table
from normkit.surgery.recognition.specimen import inputs_of, locate
from normkit.threads import processor_by_default

__all__ = ["convert"]

TARGETS = ("pre-rmsnorm", "pre-crmsnorm")
SUMS = ("add", "add_", "sub", "cat", "concat", "iadd")
UNNORMALIZED = "reads the residual stream without a layer norm, as in post-norm models"
PRODUCTS = ("mul", "mul_")
FACTORS = ("mul", "mul_", "div", "div_")


@torch.inference_mode(False)
def convert(model: nn.Module, to: str, example: Any, *, inplace: bool = True) -> Report:
    """Turn the layer norms of a Pre-LN transformer into RMS norms, exactly.

    Everything that writes to the residual stream (output projections, embeddings, class tokens) is centred over
    features, which no layer norm on the stream sees; then each of them equals an RMSNorm. With ``"pre-crmsnorm"`` gains
    and shifts go into the layers that read them, and the norms are CRMSNorms. The last feature of the stream, which is
    minus the sum of the others, is dropped.

    The model's graph tells who writes and who reads. A model is refused with the reason, and stays as it was, where
    anything but a layer norm reads the stream, or a norm writes it, as in post-norm transformers. Outputs are compared
    in float64, on the example and on a fresh input (on a CPU a smaller one), before anything is changed.

    Args:
        model: a transformer, in evaluation.
        to: ``"pre-rmsnorm"``, or ``"pre-crmsnorm"`` for those whose code leaves the width of the stream open.
        example: an input: a tensor, a tuple of arguments or a dictionary of named ones.
        inplace: change the model; else a copy, which is the report's ``model``.

    Pre-RMSNorm and Pre-CRMSNorm Transformers (Jiang, Gu, Zhu, Pan, 2023), arXiv 2305.14858.

    >>> embed, head = nn.Embedding(9, 6), nn.Linear(6, 9)
    >>> model = nn.Sequential(embed, nn.LayerNorm(6), head).eval()
    >>> [(change.site, change.became) for change in convert(model, "pre-rmsnorm", torch.arange(9))]
    [('0', 'centred'), ('1', 'rmsnorm')]
    """
    check.choice("convert", "to", to, TARGETS)
    proof.ready("convert", model, example)
    norms = _layer_norms(model, example)
    work = copy.deepcopy(model)
    holders = [name for name, part in work.named_modules() if isinstance(part, nn.Embedding) or is_plain(part)]
    flow = Graph(work, example, [*norms, *holders])
    try:
        stream = Stream(flow, norms)
        stream.require_readers()
        edits = _Edits(stream, norms)
        edits.shorten() if to == "pre-crmsnorm" else edits.centre()
    except Stays as error:
        raise ValueError(f"convert: refused, and the model is as it was: {error}") from error
    after = _apply(copy.deepcopy(model), copy.deepcopy(edits), False)
    far = proof.proven("convert", model, after, example)
    changed = [replace(change, difference=far) for change in edits.changes.values()]
    kept = [Change(name, norm_words(norms[name]), why_not=why) for name, why in stream.left.items()]
    order = {name: at for at, name in enumerate([n for n, _ in model.named_modules()])}
    rows = sorted([*changed, *kept], key=lambda row: (order.get(row.site, -1), row.site))
    return Report(_apply(model if inplace else copy_model(model), edits, inplace), rows)


def _layer_norms(model: nn.Module, example: Any) -> dict[str, Any]:
    """The layer norms of a model by site."""
    sites = sized_table(model, inputs_of(model, example))
    plain = {name: match for name, match in sites.found.items() if is_layer_norm(match.name, match.kwargs)}
    norms = {name: match for name, match in plain.items() if not match.behind}
    if not norms:
        names = sorted({str(match.name) for match in sites.found.values()})
        raise ValueError(
            f"convert: the model has no layer norm to convert; it has "
            f"{', '.join(names) or 'no norm'}{name_others(sites.rest)}"
        )
    return norms


def _apply(model: nn.Module, edits: _Edits, inplace: bool) -> nn.Module:
    """Put everything in its place; what was tied and is not any more is not tied again by who saves or loads."""
    _train_alike(model, edits)
    model = replace_parts("convert", model, edits.modules, inplace, edits.tensors)
    if edits.untied:
        untie(model)
    return model


class Stream:
    """The residual streams of a model: which layer norms read them, and what writes to them.

    ``read_by`` are the norms that can be converted, ``writers`` the modules, ``tensors`` the parameters that write;
    ``scales`` are parameters that multiply what one writer gives, feature by feature, on its way there, and the writer
    of each; ``left`` tells of every other norm why not.
    """

    def __init__(self, flow: Graph, norms: Mapping[str, Match]):
        self.flow, self.norms = flow, norms
        self.left: dict[str, str] = {}
        self._follow(norms)
        writing = set(norms) & set(self.writers)
        if writing:  # such a norm reads what it wants: only its result is of the stream
            self._follow([name for name in norms if name not in writing])
            self.left = {name: why for name, why in self.left.items() if name not in self.writers}
        self._whole()

    def require_readers(self) -> None:
        """Refuse a stream that something else than norms reads, or that no norm reads."""
        open_at = [why for why in self.left.values() if UNNORMALIZED in why]
        if open_at or not self.read_by:
            why = [*open_at, *self.left.values(), "its layer norms write to the stream, and none reads it"]
            raise Stays(why[0])

    def _follow(self, norms: Collection[str]) -> None:
        """Take in the stream that each norm reads."""
        self.axis: dict[fx.Node, int] = {}
        self.read_by: list[str] = []
        self.writers: dict[str, int] = {}
        self.tensors: dict[str, int] = {}
        self.scales: dict[str, str] = {}
        self.left = {}
        for name in norms:
            try:
                self._enter(name)
            except Stays as error:
                self.left[name] = str(error)

    def _enter(self, name: str) -> None:
        """Take in the stream that a norm reads, or nothing of it."""
        calls = [call for call in self.flow.calls if call.site == name]
        if not calls or any(len(call.inputs) != 1 or len(call.outputs) != 1 for call in calls):
            raise Stays(f"{name} is not called with one input and one result")
        axis: dict[fx.Node, int] = {}
        writers: dict[str, int] = {}
        tensors: dict[str, int] = {}
        scales: dict[str, str] = {}
        todo = [(call.inputs[0], call.inputs[0].meta["val"].ndim - 1) for call in calls]
        while todo:
            node, at = todo.pop()
            if node in axis or node in self.axis:
                continue
            axis[node] = at
            todo += self._written(node, at, writers, tensors, scales)
            todo += self._read(node, at)
        self.axis |= axis
        self.writers |= writers
        self.tensors |= tensors
        self.scales |= scales
        self.read_by.append(name)

    def _written(
        self, node: fx.Node, at: int, writers: dict[str, int], tensors: dict[str, int], scales: dict[str, str]
    ) -> Iterator[tuple[fx.Node, int]]:
        """What a node of the stream is made of; writers are noted."""
        kind, size = word(node, self.flow.model), node.meta["val"].shape[at]
        if node in self.flow.by:
            writers[self.flow.by[node].site] = at
        elif node in self.flow.tensors:
            tensors[self.flow.tensors[node]] = at
        elif kind == "linear":
            for part in node.args[1:]:  # as attention of torch calls its projection
                tensors[self._own_tensor(part, node)] = 0
        elif kind in PRODUCTS and len(node.all_input_nodes) == 2:
            writer, scale = self._scaled(node, at)
            writers[writer], scales[scale] = at, writer
        elif _is_sum(node, kind):
            yield from _summands(node, at, kind)
        elif _is_move(node, kind):
            source = node.all_input_nodes[0]
            yield source, self._before(node, source, at, size)
        else:
            raise Stays(f"what it normalizes is no residual stream: {kind} makes it")

    def _own_tensor(self, part: Any, node: fx.Node) -> str:
        """The name of a parameter that one step alone reads."""
        if part not in self.flow.tensors or list(part.users) != [node]:
            raise Stays(
                f"{word(node, self.flow.model)} writes to the residual stream, with a weight read elsewhere too"
            )
        return self.flow.tensors[part]

    def _scaled(self, node: fx.Node, at: int) -> tuple[str, str]:
        """The layer whose result is multiplied feature by feature (a layer scale), and by which parameter."""
        held = [part for part in node.all_input_nodes if part in self.flow.tensors]
        others = [part for part in node.all_input_nodes if part not in held]
        size = node.meta["val"].shape[at]
        if len(held) != 1 or tuple(held[0].meta["val"].shape) != (size,) or at != node.meta["val"].ndim - 1:
            raise Stays(f"what it normalizes is no residual stream: {word(node, self.flow.model)} makes it")
        call, result = self.flow.source(others[0])
        if not _in_order(self._arrival_marks(result, others[0]), at, size):
            raise Stays(f"the features of {call.site} are mixed before they are scaled")
        self.flow.alone(call.site)
        if not is_plain(self.flow.model.get_submodule(call.site)):
            raise Stays(f"{call.site}, which is no plain layer, is scaled")
        return call.site, self._own_tensor(held[0], node)

    def _arrival_marks(self, node: fx.Node, end: fx.Node) -> Tensor:
        """The marks of a result's last axis where it arrives, moved and not read on its way."""
        marks = mark_channels(node, -1)
        while node is not end:
            (user,) = node.users
            node, marks = user, move_marks(user, node, marks, self.flow.model)
        return marks

    def _before(self, node: fx.Node, source: fx.Node, at: int, size: int) -> int:
        """The axis that the features had before they were moved."""
        shape = source.meta["val"].shape
        for axis in reversed([a for a in range(len(shape)) if shape[a] == size]):
            if _in_order(move_marks(node, source, mark_channels(source, axis), self.flow.model), at, size):
                return axis
        raise Stays(f"the features are mixed by {word(node, self.flow.model)}")

    def _read(self, node: fx.Node, at: int) -> Iterator[tuple[fx.Node, int]]:
        """Who reads a node of the stream: layer norms, sums, and what moves it."""
        size = node.meta["val"].shape[at]
        for user in node.users:
            kind = word(user, self.flow.model)
            if user in self.flow.by:
                self._require_norm(node, user)
            elif user.op != "output" and not torch.is_tensor(user.meta.get("val")):
                continue  # a size is asked for, or something checked
            elif _is_sum(user, kind):
                yield user, at + user.meta["val"].ndim - node.meta["val"].ndim
            elif _is_move(user, kind):
                yield user, self._after(node, user, at, size)
            else:
                raise Stays(f"{kind} {UNNORMALIZED}")

    def _require_norm(self, node: fx.Node, user: fx.Node) -> None:
        """Refuse a module that reads the stream and is no norm of it."""
        call = self.flow.by[user]
        normalizes = call.site in self.norms and call.inputs == [node]
        if not normalizes and user not in self.axis and self.flow.by.get(node) is not call:
            raise Stays(f"{call.site} {UNNORMALIZED}")

    def _after(self, node: fx.Node, user: fx.Node, at: int, size: int) -> int:
        """The axis that the features have once they are moved."""
        marks = move_marks(user, node, mark_channels(node, at), self.flow.model)
        for axis in reversed([a for a in range(marks.ndim) if marks.shape[a] == size]):
            if _in_order(marks, axis, size):
                return axis
        raise Stays(f"the features are mixed by {word(user, self.flow.model)}")

    def _whole(self) -> None:
        """A writer that is called elsewhere too must not be changed; every call of a norm was followed."""
        for call in self.flow.calls:
            on = any(node in self.axis for node in call.outputs)
            if call.site in self.writers and not on and call.site not in self.scales.values():
                raise Stays(f"{call.site} writes to the residual stream, and elsewhere too")


def _is_sum(node: fx.Node, kind: str) -> bool:
    return kind in SUMS or (kind in FACTORS and len(node.all_input_nodes) == 1)


def _is_move(node: fx.Node, kind: str) -> bool:
    return kind in MOVES | KEEPS and len(node.all_input_nodes) == 1


def _summands(node: fx.Node, at: int, kind: str) -> Iterator[tuple[fx.Node, int]]:
    """What a sum is made of, and the axis of its features there."""
    if any(isinstance(part, int | float) and part for part in node.args[:2]) and kind not in (*FACTORS, "cat"):
        raise Stays("a number is added to the residual stream")
    for source in node.all_input_nodes:
        offset = node.meta["val"].ndim - source.meta["val"].ndim
        if at < offset or source.meta["val"].shape[at - offset] != node.meta["val"].shape[at]:
            raise Stays(f"{kind} joins other features to the residual stream")
        yield source, at - offset


def _in_order(marks: Tensor, axis: int, size: int) -> bool:
    try:
        return bool((channels(marks, axis, size) == torch.arange(size, device="cpu")).all())
    except Stays:
        return False


class _Edits:
    """What a conversion puts where."""

    def __init__(self, stream: Stream, norms: Mapping[str, Match]):
        self.stream, self.norms = stream, norms
        self.modules: dict[str, nn.Module] = {}
        self.tensors: dict[str, nn.Parameter] = {}
        self.changes: dict[str, Change] = {}
        self.untied = False

    def __deepcopy__(self, memo: dict[int, Any]) -> _Edits:
        twin = copy.copy(self)
        twin.modules, twin.tensors = copy.deepcopy(self.modules), copy.deepcopy(self.tensors)
        return twin

    def centre(self) -> None:
        """Centre what is written; the norms that read it become RMS norms."""
        model = self.stream.flow.model
        scaled = {writer: scale for scale, writer in self.stream.scales.items()}
        for scale, writer in self.stream.scales.items():
            old = getattr(*locate(model, scale)).detach()
            self.tensors[scale] = nn.Parameter(torch.ones_like(old), old.requires_grad)
            self.changes[scale] = Change(scale, "Parameter", f"ones, and in {writer}")
        ties = ties_of(model, self.stream.writers)
        for name in self.stream.writers:
            layer = model.get_submodule(name)
            if name in scaled:
                factors = getattr(*locate(model, scaled[name])).detach().double()
                layer = fold_scale(layer, factors, torch.zeros_like(factors), "after")
            if name in self.norms:
                self._put(name, layer, Centred(copy.deepcopy(layer)), "centred")
            else:
                self.untied |= bool(ties[name])
                what = f"centred, not tied to {ties[name][0]} any more" if ties[name] else "centred"
                self._put(name, layer, _center(layer), what)
        for name, at in self.stream.tensors.items():
            old = getattr(*locate(model, name)).detach()
            axis = at + old.ndim - self._rank(name)
            new = old.double() - old.double().mean(axis, keepdim=True)
            self.tensors[name] = nn.Parameter(new.to(old.dtype), old.requires_grad)
            self.changes[name] = Change(name, "Parameter", "centred")
        for name in self.stream.read_by:
            self._put(name, model.get_submodule(name), _rms(self.norms[name]), "rmsnorm")

    def _rank(self, name: str) -> int:
        return next(n.meta["val"].ndim for n, held in self.stream.flow.tensors.items() if held == name)

    def _put(self, name: str, old: nn.Module, new: nn.Module, became: str) -> None:
        was = norm_words(self.norms[name]) if name in self.norms else type(old).__name__
        self.modules[name] = new.train(old.training)
        self.changes[name] = Change(name, was, became)

    def shorten(self) -> None:
        """Centre, then drop the last feature; gains and shifts go into the layers that read the norms."""
        self.centre()
        flow, model = self.stream.flow, self.stream.flow.model
        reading = {call.site for call in flow.calls if any(node in self.stream.axis for node in call.inputs)}
        if reading & set(self.norms) - set(self.stream.read_by):
            raise Stays("a layer norm that cannot be converted reads the residual stream")
        self._shorten_writers()
        for name in self.stream.read_by:
            own: Any = self.norms[name].module
            wide = int(self.norms[name].kwargs["dim"])
            self._shorten_readers(name, wide)
            self._put(name, model.get_submodule(name), CRMSNorm(wide, eps=own.eps), "crmsnorm")

    def _shorten_writers(self) -> None:
        for name in self.stream.writers:
            layer = self.modules[name]
            if isinstance(layer, Centred):
                layer.shorter = True
            else:
                self.modules[name] = _fewer_outputs(layer)
        for name in self.stream.scales:
            self.tensors[name] = nn.Parameter(self.tensors[name].detach()[:-1].contiguous())
        for name, at in self.stream.tensors.items():
            whole = self.tensors[name]
            axis = at + whole.ndim - self._rank(name)
            self.tensors[name] = nn.Parameter(whole.detach().narrow(axis, 0, whole.shape[axis] - 1).contiguous())

    def _shorten_readers(self, name: str, wide: int) -> None:
        """Let the layers that read a norm take one feature less, with its gain and shift folded in."""
        flow, model = self.stream.flow, self.stream.flow.model
        output = flow.call(name).outputs[0]
        scale, offset = _affine(self.norms[name].module, wide)
        try:
            readers = flow.readers(output, mark_channels(output, -1))
        except Stays as error:
            raise Stays(f"{name} cannot lose a feature, since not layers alone read it: {error}") from error
        for reader, arrived in readers:
            layer = self.modules.get(reader.site, model.get_submodule(reader.site))
            if not isinstance(as_linear(layer), nn.Linear) or not _in_order(arrived, -1, wide):
                raise Stays(f"{reader.site} reads {name}, and is no linear layer on its features")
            flow.call(reader.site)
            self.modules[reader.site] = _fewer_inputs(fold_scale(layer, scale, offset, "before"))
            self.changes.setdefault(reader.site, Change(reader.site, type(layer).__name__, "one feature less"))


def _train_alike(model: nn.Module, edits: Any) -> None:
    """Let each parameter be trained where the one of its name was; what had none is frozen where all others are."""
    for name, new in edits.modules.items():
        old = model.get_submodule(name)
        trained = {own: parameter.requires_grad for own, parameter in old.named_parameters()}
        frozen = bool(trained) and not any(trained.values())
        trained |= dict.fromkeys(dict(old.named_buffers()), False)
        names = edits.norms[name].carried if isinstance(new, RMSNorm) else {}
        for own, parameter in new.named_parameters():
            parameter.requires_grad_(trained.get(names.get(own, own), parameter.requires_grad and not frozen))
    for name, tensor in edits.tensors.items():
        tensor.requires_grad_(getattr(*locate(model, name)).requires_grad)


@torch.no_grad()
def _center(layer: nn.Module) -> nn.Module:
    """A writer whose result has mean zero over features."""
    if isinstance(layer, nn.Embedding):
        new: Any = copy.deepcopy(layer)
        exact = layer.weight.double()
        new.weight = nn.Parameter((exact - exact.mean(-1, keepdim=True)).to(layer.weight.dtype))
        return new
    new = copy.deepcopy(as_linear(layer))
    if getattr(new, "groups", 1) > 1 or width(layer, "after") != new.weight.shape[0]:
        raise Stays(f"a {type(layer).__name__} in groups or transposed writes to the residual stream")
    for name in ("weight", "bias"):
        if (old := getattr(new, name)) is not None:
            exact = old.double()
            setattr(new, name, nn.Parameter((exact - exact.mean(0, keepdim=True)).to(old.dtype), old.requires_grad))
    return like(layer, new)


def _rms(match: Match) -> nn.Module:
    """The RMS norm with a layer norm's eps, gain and shift."""
    own: Any = match.module
    first = next(own.parameters(), None)
    cast = {"cast": match.kwargs["cast"]} if "cast" in match.kwargs else {}
    affine, offset = own.weight is not None, match.kwargs.get("offset", 0.0)
    wide = match.kwargs["dim"]
    with processor_by_default():
        new = RMSNorm(wide, eps=own.eps, affine=affine, bias=own.bias is not None, offset=offset, **cast)
    if first is not None:
        new = new.to(device=first.device, dtype=first.dtype)
    new.load_state_dict(own.state_dict())
    return new


@torch.no_grad()
def _affine(norm: Any, wide: int) -> tuple[Tensor, Tensor]:
    """The scale and shift of a recognized layer norm, in float64."""
    like = torch.ones(wide, dtype=torch.float64, device="cpu")
    scale = like if norm.weight is None else norm.weight.double() + getattr(norm, "offset", 0.0)
    return scale, 0 * like if norm.bias is None else norm.bias.double()


@torch.no_grad()
def _fewer_outputs(layer: nn.Module) -> nn.Module:
    """A centred writer without its last feature."""
    if isinstance(layer, nn.Embedding):
        layer.weight = nn.Parameter(layer.weight[:, :-1].contiguous())
        layer.embedding_dim -= 1
        return layer
    new: Any = as_linear(layer)
    new.weight = nn.Parameter(new.weight[:-1].contiguous())
    new.bias = None if new.bias is None else nn.Parameter(new.bias[:-1].contiguous())
    name = "out_channels" if hasattr(new, "out_channels") else "out_features"
    setattr(new, name, getattr(new, name) - 1)
    return like(layer, new)


@torch.no_grad()
def _fewer_inputs(layer: nn.Module) -> nn.Module:
    """A reader of vectors whose last feature is minus the sum of the others, and is not there."""
    new: Any = as_linear(layer)
    exact = new.weight.double()
    new.weight = nn.Parameter((exact[:, :-1] - exact[:, -1:]).to(new.weight.dtype))
    new.in_features -= 1
    return like(layer, new)
