"""The same numbers with fewer layers: norms, gains and reparametrizations into the weights beside them, proven."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.weight_norm import WeightNorm, remove_weight_norm

from normkit.activation.batch.membrane_batchnorm import MembraneBatchNorm
from normkit.norm import Norm
from normkit.parameters import copy_model
from normkit.surgery import proof
from normkit.surgery.edits import replace_parts
from normkit.surgery.edits.changes import Change, Report, norm_words, ties_of
from normkit.surgery.edits.layers import ThresholdNeuron, Zeros, hooks_of, takes_batch_statistics
from normkit.surgery.exact.pairs import (
    fold_beside,
    fold_scale,
    is_layer,
    is_plain,
    measure_affine,
    plain_layer,
    scale_and_shift,
    width,
)
from normkit.surgery.flow import Call, Graph, Stays, channels, mark_channels, which
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.match import Followed, Match, begun
from normkit.surgery.recognition.recognize import sized_table
from normkit.surgery.recognition.search import behind, without
from normkit.surgery.recognition.specimen import inputs_of
from normkit.weight._apply import take_all_off
from normkit.where import Where, require_known, selects

__all__ = ["fold"]


class Foldable(NamedTuple):
    """A norm that may be folded: the axis of its channels, what it does to each, and what is left in its place."""

    name: str
    was: str
    axis: int
    scale: Tensor
    offset: Tensor
    left: nn.Module
    before_only: bool
    became: str


class Folding(NamedTuple):
    """What a fold puts where, and into which layers the norm went."""

    modules: dict[str, nn.Module]
    became: str


@torch.inference_mode(False)
def fold(model: nn.Module, example: Any, *, where: Where = None, inplace: bool = True) -> Report:
    """Fold norms into the linear layers and convolutions beside them: the same numbers, with fewer layers.

    A norm that is a scale and a shift of each channel in evaluation, as batch norms of every kind are, goes into a
    layer beside it and is gone. That is the layer that it reads, those that read it, or one that reads the same and to
    which it is added. Gain and shift of other norms go into the layers that read them, and the norm keeps its place
    without (a gain of 1, a shift of 0). Reparametrized weights become plain ones, and so do those of convolutions and
    linears that compute them from their parameters at every call (timm's ``StdConv2d``). The norm of a spiking neuron's
    potential goes into its thresholds.

    Which module reads which follows from the model's graph, by ``torch.export``, or ``torch.fx`` where that fails.
    What is read elsewhere too, called twice, tied or hooked is left alone, and the report says why. Before anything is
    changed, outputs are compared in float64, on the example and on a fresh input, a smaller one on a CPU where the
    model takes it. What the model returns for other arguments (``output_hidden_states``), at sizes where its code does
    otherwise, or a part of it called alone, is not compared, and may differ.

    Args:
        model: any model, in evaluation.
        example: an input: a tensor, a tuple of arguments or a dictionary of named ones.
        where: only norms whose name fits a pattern, or whose class is the one given, or any of a list of such; or those
            for which a function of name and module is true.
        inplace: change the model; else a copy, which is the report's ``model``.

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()).eval()
    >>> [(change.site, change.became) for change in fold(model, torch.randn(1, 3, 8, 8))]
    [('1', 'into 0')]
    >>> model[1]
    Identity()
    """
    proof.ready("fold", model, example)
    require_known("fold", where, model)
    work = copy.deepcopy(model)
    baked = bake(work)
    neurons = _neurons(work, where)
    work = replace_parts("fold", work, copy.deepcopy(neurons), False)
    sites, left = _sites(work, example, where)
    changes = {**{name: Change(name, was, "a plain weight") for name, was in baked.items()}, **left}
    for name in neurons:
        changes[name] = Change(name, type(model.get_submodule(name)).__name__, "in its thresholds")
    layers = [name for name, part in work.named_modules() if is_layer(part)]
    new: dict[str, nn.Module] = {name: work.get_submodule(name) for name in baked} | neurons
    if sites:
        flow = Graph(work, example, [*sites, *layers])
        todo = sorted(sites.values(), key=lambda s: (s.before_only, not _reads_a_layer(flow, s)))
        tried: list[Foldable] = []
        while len(todo) != len(tried):  # those that stay for a norm that is gone since are tried again
            tried, todo = todo, []
            for site in tried:
                try:
                    done = _fold_one(flow, site, new)
                except Exception as error:  # the others may be folded
                    changes[site.name] = Change(site.name, site.was, why_not=_plainly(error))
                    todo.append(site)
                    continue
                new |= done.modules
                changes[site.name] = Change(site.name, site.was, done.became)
        changes |= _inside(sites, changes)
    after = replace_parts("fold", copy.deepcopy(model), copy.deepcopy(new), False)
    far = proof.proven("fold", model, after, example) if new else 0.0
    order = {name: at for at, (name, _) in enumerate(model.named_modules())}
    rows = [changes[name] for name in sorted(changes, key=order.__getitem__)]
    target = model if inplace else copy_model(model)
    return Report(replace_parts("fold", target, new, inplace), [_with_error(row, far) for row in rows])


def _inside(sites: Mapping[str, Foldable], changes: Mapping[str, Change]) -> dict[str, Change]:
    """What became of norms inside of a module that is a norm as a whole, and is gone with all that it holds."""
    gone = {name for name, site in sites.items() if not site.before_only and changes[name].became is not None}
    inner = {name: outer for name in sites for outer in _down_to(name)[:-1] if outer in gone}
    return {name: Change(name, sites[name].was, f"with {outer}") for name, outer in inner.items()}


def _down_to(name: str) -> list[str]:
    """The names of the modules that hold one, from the outermost, and its own."""
    return list(itertools.accumulate(name.split("."), "{}.{}".format))


def _with_error(row: Change, far: float) -> Change:
    return row if row.became is None else Change(row.site, row.was, row.became, row.carried, far)


def bake(model: nn.Module) -> dict[str, str]:
    """Make reparametrized layers of a copy plain, and tell of each what it had."""
    layers = {name: part for name, part in model.named_modules() if parametrize.is_parametrized(part)}
    kinds = {}
    for name, part in layers.items():
        lists: Any = part.parametrizations
        kinds[name] = ", ".join(type(way).__name__.lstrip("_") for ways in lists.values() for way in ways)
    take_all_off(model)
    for name, part in model.named_modules():
        for hook in hooks_of(part, WeightNorm):
            kinds[name] = type(hook).__name__
            remove_weight_norm(part, hook.name)
    return kinds | make_plain("fold", model)


def make_plain(owner: str, model: nn.Module) -> dict[str, str]:
    """Put plain layers where a copy has some that are derived from them, and tell of each what it was."""
    parts = {name: part for name, part in model.named_modules() if name and not specimen.refusal(part)}
    layers = {name: layer for name, part in parts.items() if (layer := plain_layer(part)) is not None}
    ties = ties_of(model, layers)
    new = {name: layer for name, layer in layers.items() if not ties[name]}
    if new:
        replace_parts(owner, model, new, True)
    return {name: type(parts[name]).__name__ for name in new}


def _neurons(model: nn.Module, where: Where) -> dict[str, nn.Module]:
    """The spiking neurons that normalize their potential, with their norms in their thresholds."""
    neurons = {name: part for name, part in model.named_modules() if isinstance(part, MembraneBatchNorm)}
    asked = {name: part for name, part in neurons.items() if selects(where, name, part) and not specimen.refusal(part)}
    return {name: ThresholdNeuron.of(part) for name, part in asked.items()}


def _sites(model: nn.Module, example: Any, where: Where) -> tuple[dict[str, Foldable], dict[str, Change]]:
    """The norms that may be folded, and those that may not, with the reason."""
    sites: dict[str, Foldable] = {}
    left: dict[str, Change] = {}
    shapes = inputs_of(model, example)
    for name, part in model.named_modules():
        if takes_batch_statistics(part) and selects(where, name, part):
            _enter(sites, left, name, type(part).__name__, _batch, part, len(shapes.get(name, ())))
    done = {*sites, *left}

    def others(name: str, part: nn.Module) -> bool:
        return done.isdisjoint(_down_to(name))

    known: set[int] = set()
    for name, match in sized_table(model, shapes, others).items():
        part = model.get_submodule(name)
        if id(part) in known or not selects(where, name, part):
            continue
        known.add(id(part))
        if not match:
            left[name] = Change(name, match.kind, why_not=f"not recognized: {match.why_not}")
        else:
            was = norm_words(match)
            _enter(sites, left, name, was, _foldable, part, match, len(shapes.get(name, ())))
    return sites, left


def _enter(
    sites: dict[str, Foldable],
    left: dict[str, Change],
    name: str,
    was: str,
    find: Callable[..., Foldable | None],
    *given: Any,
) -> None:
    try:
        site = find(name, *given)
    except Exception as error:  # the others may be folded
        left[name] = Change(name, was, why_not=_plainly(error))
        return
    if site is not None:
        sites[name] = site


def _batch(name: str, norm: nn.Module, axes: int) -> Foldable | None:
    """A batch norm of torch, of the library, or derived from torch's, with the layers that act on what it gives."""
    refusal = specimen.refusal(norm)
    if refusal is not None:
        raise Stays(refusal)
    rest = behind(norm)
    try:
        scale, offset = scale_and_shift(without(norm, rest) if rest else norm)
    except ValueError:
        if rest or not isinstance(norm, Norm) or getattr(norm, "weight", None) is None:
            raise
        carried = {own: own for own in ("weight", "bias") if getattr(norm, own, None) is not None}
        match = Match(type(norm).__name__, norm.card.name, dict(norm.arguments), norm, carried=carried)
        return _gain(name, match, norm, _axis(norm), axes)
    layers = [norm.get_submodule(layer) for layer in rest]
    left = nn.Identity() if not layers else layers[0] if len(layers) == 1 else nn.Sequential(*layers)
    return Foldable(name, type(norm).__name__, _axis(norm), scale, offset, left.eval(), False, "gone")


def _axis(norm: Any) -> int:
    card = getattr(type(norm), "card", None)
    last = card is not None and card.shape.features_last
    return -1 if last or getattr(norm, "channels_last", False) else 1


def _foldable(name: str, norm: nn.Module, match: Match, axes: int) -> Foldable | None:
    """A norm that was recognized: a scale and shift in evaluation, or one whose gain and shift are."""
    if match.module is None or not match.sized:
        raise Stays("its width is not known")
    own = match.module.norm if isinstance(match.module, Followed) else match.module
    if next(own.buffers(), None) is not None:
        scale, offset = measure_affine(own)
        left = nn.Sequential(*match.module.layers) if isinstance(match.module, Followed) else nn.Identity()
        return Foldable(name, type(norm).__name__, _axis(own), scale, offset, left.eval(), False, "gone")
    if match.behind:
        raise Stays(f"it has its {match.behind[0]} behind the norm")
    if match.kwargs.get("heads"):
        raise Stays("its heads have gains of their own")
    return _gain(name, match, norm, _axis(own), axes)


@torch.no_grad()
def _gain(name: str, match: Match, norm: nn.Module, axis: int, axes: int) -> Foldable | None:
    """Gain and shift of a norm, and the norm without; None where there is nothing to fold."""
    start = specimen.tensors(begun(match))
    learned = {ours: theirs for ours, theirs in match.carried.items() if ours in ("weight", "bias")}
    whole: Any = match.module
    bare, plain = copy.deepcopy((norm, whole))
    theirs, mine = specimen.tensors(bare), specimen.tensors(plain)
    for ours, source in learned.items():
        theirs[source].copy_(start[ours].reshape(theirs[source].shape))
        mine[ours].copy_(start[ours])
    if all(torch.equal(t, specimen.tensors(norm)[n]) for n, t in theirs.items()):
        return None
    if specimen.further(norm)[0]:
        raise Stays("it is called with more than one tensor")
    with specimen.quiet():
        scale, offset = _between(plain, whole, theirs[next(iter(learned.values()))].numel(), axis, axes)
    return Foldable(name, norm_words(match), axis, scale, offset, bare, True, "without gain and shift")


def _between(bare: nn.Module, norm: nn.Module, count: int, axis: int, axes: int) -> tuple[Tensor, Tensor]:
    """The scale and the shift of each channel that make of one norm's result the other's, of inputs with ``axes``.

    Both are the library's, which compute in float64; a model's own may not.
    """
    first = next(iter(specimen.tensors(norm).values()))
    space = (4,) * ((axes or 4) - 2)
    shape = (64, *space, count) if axis == -1 else (64, count, *space)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu").to(
        first.device
    )
    plain, whole = (specimen.first(copy.deepcopy(m).double()(x)).double().movedim(axis, -1) for m in (bare, norm))
    n, y = plain.flatten(0, -2), whole.flatten(0, -2)
    centred = n - n.mean(0)
    scale = (centred * (y - y.mean(0))).sum(0) / centred.square().sum(0)
    offset = y.mean(0) - scale * n.mean(0)
    offset = torch.where(offset.abs() < 1e-12 * y.abs().max(), 0.0, offset)
    if not ((n * scale + offset - y).abs() <= 1e-5 * y.abs().max()).all():
        raise Stays("its gain and shift are not applied last")
    return scale, offset


def _reads_a_layer(flow: Graph, site: Foldable) -> bool:
    try:
        return bool(flow.source(flow.call(site.name).inputs[0]))
    except Stays:
        return False


def _fold_one(flow: Graph, site: Foldable, new: Mapping[str, nn.Module]) -> Folding:
    """Put one norm into its neighbours, or raise why not."""
    call = flow.alone(site.name)
    if not site.before_only:
        try:
            done = _into_source(flow, site, call, new)
        except (Stays, ValueError) as after:
            try:
                done = _into_readers(flow, site, call, new)
            except (Stays, ValueError) as before:
                beside = _into_neighbour(flow, site, call, new)
                if beside is None:
                    raise Stays(f"{_plainly(after)}; {_plainly(before)}") from before
                return beside
        if isinstance(site.left, nn.Identity):
            flow.forget(call)
        return done
    return _into_readers(flow, site, call, new)


def _plainly(error: Exception) -> str:
    expected = isinstance(error, Stays | ValueError)
    return re.sub(r"^\w+: ", "", str(error)) if expected else proof.describe_error(error)


def _into_source(flow: Graph, site: Foldable, call: Call, new: Mapping[str, nn.Module]) -> Folding:
    """Into the layer that the norm reads."""
    call_of_layer, node = flow.source(call.inputs[0])
    name = call_of_layer.site
    layer = _layer(flow, name, new)
    marks = mark_channels(node, _channel_axis(layer))
    [(reader, arrived)] = flow.readers(node, marks)
    if reader is not call:
        raise Stays(f"{name} is read elsewhere too")
    wide = width(layer, "after")
    rows = which(arrived.movedim(_of(call.inputs[0], site.axis), 0).flatten(1), wide)
    own = torch.stack([torch.bincount(row, minlength=wide) > 0 for row in rows])
    if len(rows) != len(site.scale) or not (own.sum(0) == 1).all():
        raise Stays(f"its channels are not those of {name}")
    at = own.int().argmax(0).to(site.scale.device)
    scale, offset = site.scale[at], site.offset[at]
    return Folding({site.name: site.left, name: fold_scale(layer, scale, offset, "after")}, f"into {name}")


def _into_readers(flow: Graph, site: Foldable, call: Call, new: Mapping[str, nn.Module]) -> Folding:
    """Into all layers that read the norm."""
    if not isinstance(site.left, nn.Identity) and not site.before_only:
        raise Stays("an activation stands behind it")
    output = call.outputs[0]
    readers = flow.readers(output, mark_channels(output, _of(output, site.axis)))
    if not readers:
        raise Stays("nobody reads it")
    modules: dict[str, nn.Module] = {}
    for reader, arrived in readers:
        layer = _layer(flow, reader.site, new)
        at = channels(arrived, _channel_axis(layer), len(site.scale))
        if len(at) != width(layer, "before"):
            raise Stays(f"{reader.site} reads other channels than it gives")
        modules[reader.site] = fold_scale(layer, site.scale[at], site.offset[at], "before")
    verb = "into" if not site.before_only else "without gain and shift, which are in"
    return Folding({site.name: site.left, **modules}, f"{verb} {', '.join(modules)}")


def _into_neighbour(flow: Graph, site: Foldable, call: Call, new: Mapping[str, nn.Module]) -> Folding | None:
    """Into a layer that reads what the norm reads and to whose result the norm's is added; None if there is none."""
    if not isinstance(site.left, nn.Identity):
        return None
    for neighbour, sign in flow.beside(call):
        try:
            layer = _layer(flow, neighbour.site, new)
            if _of(call.inputs[0], site.axis) == _of(call.inputs[0], _channel_axis(layer)):
                folded = fold_beside(layer, sign * site.scale, sign * site.offset)
                return Folding(
                    {site.name: Zeros().eval(), neighbour.site: folded}, f"into {neighbour.site}, to which it was added"
                )
        except (Stays, ValueError):  # the next may fit
            continue
    return None


def _of(node: Any, axis: int) -> int:
    return axis % node.meta["val"].ndim


def _channel_axis(layer: Any) -> int:
    return 1 if hasattr(layer, "kernel_size") else -1


def _layer(flow: Graph, name: str, new: Mapping[str, nn.Module]) -> nn.Module:
    """A plain layer as it is now, called once and tied to nothing."""
    layer = new.get(name, flow.model.get_submodule(name))
    if not is_plain(layer):
        if is_layer(layer) and (refusal := specimen.refusal(layer)):
            raise Stays(f"{name} {refusal.removeprefix('it ')}")
        raise Stays(f"{name} is a {type(layer).__name__}, no plain linear or convolution")
    flow.alone(name)
    return layer
