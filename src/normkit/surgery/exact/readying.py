"""What an exact rewriting of a model would need, and what stands in its way; each yes is done on a copy first."""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from normkit import check
from normkit.columns import aligned, number_of
from normkit.layers import Linear
from normkit.ops.hadamard import hadamard
from normkit.safe import say
from normkit.surgery import models, proof, saving
from normkit.surgery.edits.changes import Report, ties_of, untie
from normkit.surgery.edits.edit import replace_parts
from normkit.surgery.edits.layers import Zeros, as_linear, like
from normkit.surgery.exact.converting import Stream, convert
from normkit.surgery.exact.folding import fold
from normkit.surgery.exact.pairs import fold_scale, is_plain, width
from normkit.surgery.flow import Graph, Stays, Untraced, channels, mark_channels
from normkit.surgery.recognition.match import Recognized
from normkit.surgery.recognition.recognize import sized_table
from normkit.surgery.recognition.specimen import inputs_of, locate, quiet

__all__ = ["Need", "Readiness", "ready"]

GAINS = "gain and shift in the layers behind it"
GONE = "no norm in its place"
ELSEWHERE = "is no residual stream"


@dataclass(frozen=True)
class Need:
    """One thing that a rewriting ``needs`` of a ``site``: whether it is ``ready``, and else ``why_not``.

    ``difference`` is how far the copy differs.
    """

    site: str
    needs: str
    ready: bool
    difference: float | None = None
    why_not: str | None = None


@dataclass(frozen=True)
class Readiness(Sequence[Need]):
    """What a purpose needs of a model; true where all of it is so."""

    purpose: str
    needs: list[Need] = field(default_factory=list)

    def __getitem__(self, index):
        return self.needs[index]

    def __len__(self) -> int:
        return len(self.needs)

    def __bool__(self) -> bool:
        return all(need.ready for need in self.needs)

    @property
    def missing(self) -> list[Need]:
        """What is in the way."""
        return [need for need in self.needs if not need.ready]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"purpose": self.purpose, "ready": bool(self), "needs": [asdict(need) for need in self.needs]}

    def __str__(self) -> str:
        rows = [("site", "needs", "ready", "difference")]
        for need in self.needs:
            apart = "" if need.difference is None else f"{need.difference:.0e}"
            rows.append((need.site or "(itself)", need.needs, "yes" if need.ready else f"no: {need.why_not}", apart))
        ending = "ready" if self else f"not ready: {number_of(len(self.missing), 'need')} of {len(self)} not met"
        return "\n".join([*aligned(rows), f"{self.purpose}: {ending}"])

    __repr__ = __str__


@torch.inference_mode(False)
def ready(model: nn.Module, purpose: str, example: Any = None) -> Readiness:
    """Say what an exact rewriting of a model needs, site by site, and what is in its way.

    Each yes is done on a copy in float64, whose outputs on the example and on a fresh input must be the same to
    1e-9 of the largest number. The model stays as it is.

    Args:
        model: any model, in evaluation.
        purpose: ``"rotation"``: the residual stream is rotated as SliceGPT and QuaRot do, which wants RMS norms, gains
            that go into the layers behind them, and a stream that linear layers write. ``"int4"``: that, and a Hadamard
            matrix in front of every other linear layer. ``"no-norms"``: every norm is gone, as a batch norm, a closed
            taper, or a scale that a later norm cancels. ``"mla-absorption"``: latent attention reads keys and values
            off the features that its cache keeps.
        example: an input: a tensor, a tuple of arguments or a dictionary of named ones; None: as the model's own
            configuration has it.

    >>> model = nn.Sequential(nn.Embedding(9, 6), nn.RMSNorm(6), nn.Linear(6, 9)).eval()
    >>> [(need.needs, need.ready) for need in ready(model, "rotation", torch.arange(9))]
    [('a stream rotated in 1 writer and 1 reader', True)]
    """
    check.choice("ready", "purpose", purpose, tuple(PURPOSES))
    proof.check_model("ready", model)
    if example is None:
        from normkit.surgery import commands

        try:
            example = commands.example(model)
        except ValueError:
            raise ValueError("ready: example must be given: the configuration does not tell its input") from None
    proof.ready("ready", model, example)
    work, doubles = proof.in_double(model, example)
    case = _Case(work, doubles, model, example)
    case.model = _plainly(case)
    doubled = contextlib.nullcontext() if _runs(case.model, doubles) else proof.Doubled()
    try:
        with doubled:
            return Readiness(purpose, list(PURPOSES[purpose](case)))
    except Untraced as error:
        raise ValueError(f"ready: {error}") from error


@dataclass
class _Case:
    """A copy of a model and an example in float64, and what they are copies of."""

    model: nn.Module
    example: Any
    original: nn.Module
    first: Any

    @functools.cached_property
    def table(self) -> Recognized:
        """The norms of the model."""
        return sized_table(self.original, inputs_of(self.original, self.first))


class _Called(nn.Module):
    """A norm that is called by itself: the library's are called together with an addition where one stands before."""

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.norm(*inputs)


def _runs(model: nn.Module, example: Any) -> bool:
    try:
        with quiet():
            proof.call_model(copy.deepcopy(model), example)
    except Exception:
        return False
    return True


def _plainly(case: _Case) -> nn.Module:
    """Write a copy in float64 with torch's own layers, norms that are called by themselves, and no kernels.

    Where it does not take the example, its norms are the library's: those that make float32 of their input may not.
    """
    model, new = case.model, dict[str, nn.Module]()
    for part in model.modules():
        config: Any = getattr(part, "config", None)
        if hasattr(config, "_experts_implementation"):  # its kernels know no float64
            config._experts_implementation = "eager"
    if not _runs(model, case.example):
        twins = {name: match.module for name, match in case.table.found.items()}
        new |= {name: _Called(twin.double()).eval() for name, twin in twins.items() if twin is not None}
    parts = dict(model.named_modules())
    ties = ties_of(model, parts)
    for name, part in parts.items():
        if name and name not in new and hasattr(part, "add_norm"):
            new[name] = _Called(part).eval()
        elif type(part) is Linear and not ties[name]:
            new[name] = _torchs(part)
    return replace_parts("ready", model, new, False) if new else model


def _torchs(layer: Linear) -> nn.Linear:
    """The library's linear map as torch's."""
    new = nn.utils.skip_init(nn.Linear, layer.in_features, layer.out_features)
    new.weight, new.bias = layer.weight, layer.bias
    return new.eval()


def _proven(site: str, needs: str, before: nn.Module, after: nn.Module, example: Any, otherwise: str = "") -> Need:
    """Yes where a changed copy gives the same numbers."""
    try:
        far = proof.exact(before, after, example)
    except Exception as error:
        return Need(site, needs, False, why_not=proof.why_not(error))
    if far <= proof.CLOSE:
        return Need(site, needs, True, far)
    return Need(site, needs, False, far, otherwise or "once done, results differ")


def _with_part(model: nn.Module, name: str, part: nn.Module) -> nn.Module:
    return replace_parts("ready", copy.deepcopy(model), {name: part}, False)


def _unknown(table: Recognized) -> Iterator[Need]:
    for name, match in table.rest.items():
        yield Need(name, "a norm that is recognized", False, why_not=match.why_not)


def _gone(report: Report, table: Recognized) -> list[str]:
    """The norms that a fold has put into other layers as a whole."""
    done = [change for change in report.done if change.site in table]
    return [change.site for change in done if str(change.became).startswith(("into ", "with "))]


# ---- rotation


class _Rotation:
    """The way to a rotated stream: heads untied, layer norms made RMS norms, gains folded, then the rotation itself."""

    def __init__(self, case: _Case):
        self.model, self.example, self.table = case.model, case.example, case.table
        self.needs: list[Need] = []
        self.readers: set[str] = set()  # the layers whose inputs are rotated with the stream
        try:
            self._untie()
            self._rms()
            if not self.table.found:
                raise Stays("no norm reads it")
            left = self._gains()
            flow, stream = self._stream(left)
            self._turn(flow, stream)
        except Stays as error:
            self.needs.append(Need("", "a residual stream that is rotated", False, why_not=str(error)))

    def _step(self, needs: Mapping[str, str], after: nn.Module) -> None:
        """Go on from a changed copy, with a need of each site, if it gives the same numbers."""
        need = _proven("", "", self.model, after, self.example)
        self.needs += [replace(need, site=site, needs=words) for site, words in needs.items()]
        if need.ready:
            self.model = after

    def _untie(self) -> None:
        """Give each layer a weight of its own where it has that of an embedding."""
        after = copy.deepcopy(self.model)
        names = []
        layers: dict[str, Any] = {name: part for name, part in after.named_modules() if name and is_plain(part)}
        ties = ties_of(after, layers)
        for name, part in layers.items():
            owners = [after.get_submodule(other.rpartition(".")[0]) for other in ties[name]]
            if any(isinstance(owner, nn.Embedding) for owner in owners):
                part.weight = nn.Parameter(part.weight.detach().clone())
                names.append(name)
        if names:
            untie(after)
            self._step(dict.fromkeys(names, "a weight of its own, not the embedding's"), after)

    def _rms(self) -> None:
        """Make RMS norms of layer norms."""
        self.needs += _unknown(self.table)
        layers = [name for name, match in self.table.found.items() if match.name == "layernorm"]
        if not layers:
            return
        needs = "an RMS norm in its place"
        try:
            report = convert(self.model, "pre-rmsnorm", self.example, inplace=False)
        except ValueError as error:
            why = str(error).partition(": refused, and the model is as it was: ")[2] or str(error)
            self.needs += [Need(name, needs, False, why_not=why) for name in layers]
            return
        for change in report:
            if change.site in layers and change.became is None and ELSEWHERE not in str(change.why_not):
                self.needs.append(Need(change.site, needs, False, why_not=change.why_not))
        done = [change.site for change in report.done if change.site in layers]
        self._step(dict.fromkeys(done, needs), report.model)

    def _gains(self) -> dict[str, str | None]:
        """Fold gains, and norms as a whole where that goes; return why not where they stay."""
        report = fold(self.model, self.example, where=list(self.table.found), inplace=False)
        gone = _gone(report, self.table)
        if report.done:
            done = [change.site for change in report.done if change.site in self.table]
            self._step({name: GONE if name in gone else GAINS for name in done}, report.model)
        folded = gone if self.model is report.model else []
        self.norms = {name: match for name, match in self.table.found.items() if name not in folded}
        return {change.site: change.why_not for change in report if change.became is None}

    def _stream(self, left: Mapping[str, str | None]) -> tuple[Graph, Stream]:
        """The stream, which norms without gains alone must read; ``left`` are those with gains."""
        holders = [n for n, part in self.model.named_modules() if isinstance(part, nn.Embedding) or is_plain(part)]
        flow = Graph(self.model, self.example, [*self.norms, *holders])
        stream = Stream(flow, self.norms)
        for name, why in stream.left.items():
            if ELSEWHERE not in why:
                self.needs.append(Need(name, "a stream that norms alone read", False, why_not=why))
        for name in stream.read_by:
            if name in left:
                self.needs.append(Need(name, GAINS, False, why_not=left[name]))
        if not stream.read_by:
            raise Stays("no norm reads it")
        return flow, stream

    def _turn(self, flow: Graph, stream: Stream) -> None:
        """Rotate what writes to the stream, and back what reads the norms on it."""
        missing = sum(not need.ready for need in self.needs)
        if missing:
            raise Stays(f"{number_of(missing, 'need')} above stand{'s' if missing == 1 else ''} in the way")
        size = {int(node.meta["val"].shape[at]) for node, at in stream.axis.items()}
        if len(size) != 1:
            raise Stays(f"there are streams of {' and '.join(map(str, sorted(size)))} features")
        turn = _orthogonal(size.pop())
        modules: dict[str, nn.Module] = {}
        tensors: dict[str, nn.Parameter] = {}
        factors = {writer: scale for scale, writer in stream.scales.items()}
        for name in stream.writers:
            if name in self.table.found:
                raise Stays(f"{name}, a norm, writes to it")
            layer = self.model.get_submodule(name)
            if name in factors:
                scale = getattr(*locate(self.model, factors[name])).detach()
                layer = fold_scale(layer, scale, torch.zeros_like(scale), "after")
                tensors[factors[name]] = nn.Parameter(torch.ones_like(scale))
            modules[name] = _rotate_writer(name, layer, turn)
        ranks = {held: node.meta["val"].ndim for node, held in flow.tensors.items()}
        for name, at in stream.tensors.items():
            old = getattr(*locate(self.model, name)).detach()
            axis = at + old.ndim - ranks[name]
            tensors[name] = nn.Parameter((old.movedim(axis, -1) @ turn.to(old)).movedim(-1, axis).contiguous())
        for norm in stream.read_by:
            node = flow.call(norm).outputs[0]
            for reader, arrived in flow.readers(node, mark_channels(node, -1)):
                modules[reader.site] = self._read(reader.site, modules, arrived, turn)
        before = self.model
        after = replace_parts("ready", copy.deepcopy(self.model), modules, False, tensors)
        writers, readers = len(stream.writers) + len(stream.tensors), len(self.readers)
        what = f"a stream rotated in {number_of(writers, 'writer')} and {number_of(readers, 'reader')}"
        self.needs.append(_proven("", what, before, after, self.example))

    def _read(self, name: str, modules: Mapping[str, nn.Module], arrived: Tensor, turn: Tensor) -> nn.Module:
        """A layer behind a norm, which takes rotated vectors."""
        layer = modules.get(name, self.model.get_submodule(name))
        new: Any = copy.deepcopy(as_linear(layer)) if is_plain(layer) else None
        if not isinstance(new, nn.Linear):
            raise Stays(f"{name}, which reads a norm on it, is no linear layer")
        if (channels(arrived, -1, len(turn)) != torch.arange(len(turn), device="cpu")).any():
            raise Stays(f"{name} reads the features of a norm in another order")
        new.weight = nn.Parameter(new.weight.detach() @ turn.to(new.weight))
        self.readers.add(name)
        return like(layer, new)


def _orthogonal(size: int) -> Tensor:
    return torch.linalg.qr(
        torch.randn(size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu")
    )[0]


def _rotate_writer(name: str, layer: nn.Module, turn: Tensor) -> nn.Module:
    """A layer whose results are rotated."""
    if isinstance(layer, nn.Embedding):
        new: Any = copy.deepcopy(layer)
        new.weight = nn.Parameter(layer.weight.detach() @ turn.to(layer.weight))
        return new
    new = copy.deepcopy(as_linear(layer)) if is_plain(layer) else None
    if new is None or getattr(new, "groups", 1) > 1 or width(layer, "after") != new.weight.shape[0]:
        raise Stays(f"{name}, a {type(layer).__name__} that cannot be rotated, writes to it")
    back = turn.T.to(new.weight)
    new.weight = nn.Parameter((back @ new.weight.detach().flatten(1)).view_as(new.weight))
    new.bias = None if new.bias is None else nn.Parameter(back @ new.bias.detach())
    return like(layer, new)


def _rotation(case: _Case) -> Iterator[Need]:
    yield from _Rotation(case).needs


# ---- four bits


class _Spread(nn.Module):
    """A linear layer whose inputs pass a Hadamard matrix first, which its weight takes back."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        turn = hadamard(layer.in_features).to(layer.weight)
        self.register_buffer("turn", turn)
        self.layer = copy.deepcopy(layer)
        self.layer.weight = nn.Parameter(layer.weight.detach() @ turn)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x @ self.turn.to(x.dtype))  # type: ignore[operator]


def _int4(case: _Case) -> Iterator[Need]:
    """The rotated stream, and every other linear layer behind a Hadamard matrix."""
    model, example, rotation = case.model, case.example, _Rotation(case)
    yield from rotation.needs
    plain = {name: part for name, part in model.named_modules() if is_plain(part)}
    for name, part in plain.items():
        linear = as_linear(part)
        if name in rotation.readers or not isinstance(linear, nn.Linear):
            continue
        needs = f"its {linear.in_features} inputs behind a Hadamard matrix"
        try:
            new = _Spread(linear)
        except ValueError as error:
            yield Need(name, needs, False, why_not=str(error).removeprefix("hadamard: "))
            continue
        yield _proven(name, needs, model, _with_part(model, name, new), example)
    for name, tensor in model.named_parameters():
        owner = name.rpartition(".")[0]
        if tensor.dim() > 1 and owner not in plain and not isinstance(model.get_submodule(owner), nn.Embedding):
            yield Need(name, "a linear layer that reads it", False, why_not="it is a tensor of its own")


# ---- no norms


def _no_norms(case: _Case) -> Iterator[Need]:
    """Each norm folded away, or left out where a later one cancels it."""
    model, example, table, needs = case.model, case.example, case.table, GONE
    yield from _unknown(table)
    if not table.found:
        return
    report = fold(model, example, where=list(table.found), inplace=False)
    gone = _gone(report, table)
    if gone:
        need = _proven("", needs, model, report.model, example)
        yield from (replace(need, site=site) for site in gone)
    for name, match in table.found.items():
        if name in gone:
            continue
        reason = f"{match.name} measures each vector anew, and no later norm cancels that"
        need = _proven(name, needs, model, _with_part(report.model, name, nn.Identity()), example, reason)
        if need.ready and _proven(name, needs, model, _with_part(report.model, name, Zeros()), example).ready:
            need = Need(name, needs, False, why_not="no output depends on it, as in front of a layer of zeros")
        yield need


# ---- latent attention


class Latent(NamedTuple):
    """How a module of latent attention calls its parts: layers, and sizes of a head."""

    up: str
    queries: tuple[str, ...]
    output: str
    key: str
    value: str
    whole: str | None = None


LATENT = (
    Latent("kv_b_proj", ("q_b_proj", "q_proj"), "o_proj", "qk_nope_head_dim", "v_head_dim", "qk_head_dim"),
    Latent("up", ("query_up", "query"), "output", "head_dim", "value_dim"),
)


class _Repeated(nn.Module):
    """Gives every head the latent features as its keys and as its values."""

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return x.repeat(*[1] * (x.dim() - 1), 2 * self.heads)


def _absorption(case: _Case) -> Iterator[Need]:
    """Move the up-projection of keys into the queries, and that of values into the output."""
    model, example, latent = case.model, case.example, False
    needs = "keys and values read off what its cache keeps"
    for name, part in model.named_modules():
        forms = (form for form in LATENT if all(hasattr(part, word) for word in (form.up, form.key, form.value)))
        form = next(forms, None)
        if form is None or not isinstance(getattr(part, form.up), nn.Module):
            continue
        latent = True
        after = copy.deepcopy(model)
        try:
            _absorb(after.get_submodule(name), form)
        except Stays as error:
            yield Need(name, needs, False, why_not=str(error))
            continue
        reason = "something else than linear layers stands between the latent features and the scores"
        yield _proven(name, needs, model, after, example, reason)
    if not latent:
        yield Need("", needs, False, why_not="it has no latent attention as transformers or this library writes it")


def _absorb(part: Any, form: Latent) -> None:
    """Let every head read the latent features themselves, with queries and output that take them."""
    word = next((word for word in form.queries if isinstance(getattr(part, word, None), nn.Module)), form.queries[-1])
    layers = {name: getattr(part, name, None) for name in (form.up, word, form.output)}
    for name, layer in layers.items():
        if not isinstance(layer, nn.Linear):
            raise Stays(f"its {name} is a {type(layer).__name__}, no linear layer")
    up, query, output = (cast(nn.Linear, layer) for layer in layers.values())
    key, value = int(getattr(part, form.key)), int(getattr(part, form.value))
    heads, rest = divmod(up.out_features, key + value)
    if rest or query.out_features % heads or output.in_features != heads * value:
        raise Stays(f"its {form.up} does not give {key} keys and {value} values to each head")
    if up.bias is not None:
        raise Stays(f"its {form.up} has a bias")
    keys, values = up.weight.detach().unflatten(0, (heads, -1)).split([key, value], 1)
    rank = up.in_features

    def absorb(rows: Tensor) -> Tensor:
        own, shared = rows.unflatten(0, (heads, -1)).split([key, rows.shape[0] // heads - key], 1)
        return torch.cat([keys.mT @ own.flatten(2), shared.flatten(2)], 1).flatten(0, 1)

    query.weight = nn.Parameter(absorb(query.weight.detach()))
    if query.bias is not None:
        query.bias = nn.Parameter(absorb(query.bias.detach()[:, None]).flatten())
    query.out_features = query.weight.shape[0]
    parts = output.weight.detach().unflatten(1, (heads, value))
    output.weight = nn.Parameter(torch.einsum("ohv,hvr->ohr", parts, values).flatten(1))
    output.in_features = heads * rank
    setattr(part, form.up, _Repeated(heads))
    setattr(part, form.key, rank)
    setattr(part, form.value, rank)
    if form.whole is not None and hasattr(part, form.whole):
        setattr(part, form.whole, getattr(part, form.whole) - key + rank)


PURPOSES: dict[str, Callable[[_Case], Iterator[Need]]] = {
    "rotation": _rotation,
    "int4": _int4,
    "no-norms": _no_norms,
    "mla-absorption": _absorption,
}


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Describe ``normkit ready``."""
    command.add_argument("model", metavar="MODEL", help=models.FORMS)
    command.add_argument("--for", dest="purpose", required=True, choices=PURPOSES, help=" or ".join(PURPOSES))
    command.add_argument("--input", metavar="SHAPE", help="an example: 1x3x224x224 of numbers, or tokens:1x16")
    command.add_argument("--json", action="store_true", help="print the table as JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what a model needs for a purpose; 1 where something stands in the way."""
    from normkit.surgery import commands

    model = saving.load(options.model).eval()
    report = ready(model, options.purpose, commands.example(model, options.input))
    say(json.dumps(report.to_dict(), indent=2) if options.json else report)
    return 0 if report else 1
