"""Merge aligned networks by averaging them, and repair what that does to the variance of their activations."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit import check
from normkit.activation.batch.repair import Repair
from normkit.ops.sums import in_type
from normkit.parameters import copy_model, require_whole
from normkit.surgery.edits import all_places, bits, edits_of, replace_parts
from normkit.surgery.edits.changes import Change, Report, take_over
from normkit.surgery.edits.edit import put
from normkit.surgery.edits.layers import KINDS, TOKENS, Laid
from normkit.surgery.exact.folding import bake
from normkit.surgery.exact.pairs import fold_pair, is_plain
from normkit.surgery.proof import check_model
from normkit.surgery.recognition import specimen
from normkit.surgery.statistics.batch_statistics import UNREACHED, batch_norms, estimate

__all__ = ["average"]

VARIANTS = ("repair", "rescale", "reshift")
CONVOLUTIONS = tuple(kind for kind, name in KINDS.items() if name != "linear")


class Goal(NamedTuple):
    """The mean and standard deviation that each channel of a layer shall have, (C,)."""

    mean: Tensor
    std: Tensor


@torch.no_grad()
def interpolate(models: Sequence[nn.Module], weights: Sequence[float] | None = None) -> nn.Module:
    """Average every entry of the state of aligned networks, with their ``weights``, or all alike; integers rounded.

    >>> a, b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    >>> _ = a.weight.data.fill_(1.0), b.weight.data.fill_(5.0)
    >>> interpolate([a, b]).weight.item()
    3.0
    """
    weights = _weights(models, weights)
    states = [model.state_dict() for model in models]
    _check_alike(states)
    merged = copy.deepcopy(models[0])
    for name, entry in merged.state_dict().items():
        wide = torch.promote_types(entry.dtype, torch.float64)
        mixed = torch.stack([w * s[name].to(wide) for w, s in zip(weights, states, strict=True)]).sum(0)
        entry.copy_(in_type(mixed, entry))
    return merged


def _check_alike(states: Sequence[Mapping[str, Tensor]]) -> None:
    """Refuse networks that do not hold the same tensors of the same sizes."""
    for at, state in enumerate(states[1:], 1):
        other = sorted(states[0].keys() ^ state.keys())
        other += [name for name, entry in states[0].items() if not other and entry.shape != state[name].shape]
        if other:
            held = " and ".join(str(tuple(s[other[0]].shape) if other[0] in s else "none") for s in (states[0], state))
            raise ValueError(f"average: models[{at}] is no network like models[0]: of {other[0]} they have {held}")


@torch.no_grad()
def measure(model: nn.Module, layers: Sequence[str], batches: Iterable[Any]) -> dict[str, Goal]:
    """Return mean and standard deviation of each layer's output channels over ``batches``.

    Both are averaged batch by batch; the deviation is the root of the average unbiased variance, without eps. The model
    is passed the data once, in train mode, as a copy, so that its own statistics stay. Layers that no batch reaches are
    missing.
    """
    probed = copy.deepcopy(model)
    held = all_places(probed)
    probes = {name: _Probe(probed.get_submodule(name)) for name in layers}
    for probe in probes.values():
        put(probed, held[probe.layer], probe)
    reached = _reached(probed, estimate("average", probed, batches))
    return {name: probe.goal() for name, probe in probes.items() if _repair_in(probe) in reached}


class _Probe(nn.Module):
    """A layer whose output is measured and passed on as it is."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer, self.norm = layer, _repair_for(layer)

    def forward(self, x: Tensor) -> Tensor:
        """Call the layer."""
        y = self.layer(x)
        self.norm(y)
        return y

    def goal(self) -> Goal:
        """Return what was measured."""
        norm: Any = _repair_in(self)
        return Goal(norm.running_mean.clone(), norm.running_var.sqrt())


def _repair_for(layer: nn.Module, **options: Any) -> nn.Module:
    """The repairing layer for what a layer gives; each token that a linear gives is a sample."""
    linear = isinstance(layer, nn.Linear)
    channels: Any = layer.out_features if linear else layer.out_channels
    weight: Any = layer.weight
    with weight.device:
        norm = Repair(channels, **options).to(weight)
    return Laid(norm, TOKENS) if linear else norm


def _repair_in(module: nn.Module) -> Repair:
    return next(part for part in module.modules() if isinstance(part, Repair))


def _reached(model: nn.Module, changes: Iterable[Change]) -> set[nn.Module]:
    """The layers of a model whose statistics were estimated anew."""
    return {model.get_submodule(change.site) for change in changes if change.became}


@torch.inference_mode(False)
def average(
    models: Sequence[nn.Module],
    data: Sequence[Any] | None = None,
    *,
    weights: Sequence[float] | None = None,
    repair: str | None = "repair",
    layers: Sequence[str] | None = None,
    uniform: bool = False,
    factor: float = 1.0,
    eps: float = 1e-5,
    folded: bool = True,
    inplace: bool = False,
) -> Report:
    """Average aligned networks, then give the activations of the average the statistics of its parents.

    In this order: the states are averaged; the chosen layers' outputs are measured in every parent; a ``repair`` layer
    with the averaged means and standard deviations (not variances) as goals is put after each in the average; all
    batch statistics, the network's own and the new layers', are estimated anew in one pass over the data; the new
    layers are folded away. The average is in evaluation. The report says of each layer what had become of its parents'
    deviation.

    Args:
        models: networks of one architecture, already aligned by permutation; they stay as they are, but for the first
            with ``inplace``.
        data: training data, gone over once for each parent and once for the result; without, the states are averaged
            and nothing more, whatever the other arguments say.
        weights: share of each network, of their sum; all alike without.
        repair: ``"repair"``, ``"rescale"``, ``"reshift"``, or None: only the network's own batch statistics are
            estimated anew, which with batch norms is what matters, by the paper.
        layers: names of the layers to treat; every convolution without, but for those that cannot be folded into, which
            the report names. The paper treats, of a ResNet, the two convolutions inside each block only.
        uniform: replace each layer's goal deviations by their mean over the channels, and its goal means m by
            sign(m) * mean(abs(m)).
        factor: multiplies all goals.
        eps: of the ``repair`` layers.
        folded: fold the ``repair`` layers into the layers before them, whose weights become plain; else they stay.
        inplace: put the average into the first network; else into a copy, which is the report's ``model``.

    Rethinking Model Re-Basin and Linear Mode Connectivity (Qu, Horvath, 2024), arXiv 2402.05966, after REPAIR:
    REnormalizing Permuted Activations for Interpolation Repair (Jordan et al., 2022), arXiv 2211.08403.

    >>> a, b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    >>> _ = a.weight.data.fill_(1.0), b.weight.data.fill_(5.0)
    >>> average([a, b], weights=[0.75, 0.25]).model.weight.item()
    2.0
    """
    if repair is not None:
        check.choice("average", "repair", repair, VARIANTS)
    factor, eps = check.number("average", "factor", factor, 0.0, check.LARGEST), check.eps("average", eps)
    check.repeatable("average", "data", data)
    weights = _weights(models, weights)
    for model in models:
        check_model("average", model)
        require_whole("average", model)
        bits.require_floats("average", model)
    total = math.fsum(weights)
    if not 0 < total < math.inf:
        raise ValueError(f"average: weights must have a sum above 0, which shares are taken of; it is {total:g}")
    weights = [weight / total for weight in weights]
    merged = interpolate(models, weights)
    rows: list[Change] = []
    modules: dict[str, nn.Module] = {}
    names, left = ([], []) if data is None or repair is None else _layers(merged, layers, folded)
    if data is not None and repair is not None and names:
        modules, rows = _repair(merged, models, data, weights, names, repair, uniform, factor, eps)
        if folded:
            for pair in modules.values():
                bake(pair)
            modules = {name: fold_pair(pair[0], _repair_in(pair)) for name, pair in modules.items()}  # type: ignore[index]
        merged = replace_parts("average", merged, modules, False, edits=edits_of(models[0], modules))
    elif data is not None and batch_norms(merged):
        rows = estimate("average", merged, data)
    merged.eval()
    rows = [*rows, *left]
    if not any(row.became for row in rows):
        rows = [Change("", type(merged).__name__, f"the average of {len(models)}"), *rows]
    if inplace:
        take_over(models[0], merged)
        merged = replace_parts("average", models[0], modules, True).eval()
    return Report(merged, rows)


def _repair(
    merged: nn.Module,
    models: Sequence[nn.Module],
    data: Sequence[Any],
    weights: Sequence[float],
    layers: Sequence[str],
    variant: str,
    uniform: bool,
    factor: float,
    eps: float,
) -> tuple[dict[str, nn.Module], list[Change]]:
    """The layers with what repairs them, set on data, and what had become of each layer's deviation."""
    parents = [measure(model, layers, data) for model in models]
    pairs: dict[str, nn.Module] = {}
    held = all_places(merged)
    for name in layers:
        layer = merged.get_submodule(name)
        if not all(name in parent for parent in parents):
            continue
        norm = _repair_for(layer, variant=variant, eps=eps)
        goal = _goal([parent[name] for parent in parents], weights, uniform, factor)
        _repair_in(norm).weight.data.copy_(goal.std)
        _repair_in(norm).bias.data.copy_(goal.mean)
        pairs[name] = nn.Sequential(layer, norm)
        put(merged, held[layer], pairs[name])
    changes = estimate("average", merged, data) if batch_norms(merged) else []
    reached = _reached(merged, changes)
    for name in [name for name, pair in pairs.items() if _repair_in(pair) not in reached]:
        layer = pairs.pop(name)[0]  # type: ignore[index]
        put(merged, held[layer], layer)
    rows = [
        Change(name, type(pairs[name][0]).__name__, _fallen(_repair_in(pairs[name]), variant))  # type: ignore[index]
        if name in pairs
        else Change(name, type(merged.get_submodule(name)).__name__, why_not=UNREACHED)
        for name in layers
    ]
    own = dict(merged.named_modules(remove_duplicate=False))
    return pairs, [*rows, *(change for change in changes if change.why_not and change.site in own)]


def _fallen(norm: Any, variant: str) -> str:
    """What was done to a layer, and what the average's deviation was of its parents'."""
    if variant == "reshift":
        return "mean as its parents'"
    share = float((norm.running_var.sqrt() / norm.weight.detach().clamp(min=1e-12)).median())
    return f"deviation as its parents', of which it had {share:.2f}"


def _weights(models: Sequence[nn.Module], weights: Sequence[float] | None) -> list[float]:
    if not models:
        raise ValueError("average: models must hold at least one network")
    if weights is not None and len(weights) != len(models):
        raise ValueError(f"average: weights must give each of the {len(models)} models a share; it is {weights!r}")
    return [1 / len(models)] * len(models) if weights is None else list(weights)


def _layers(model: nn.Module, layers: Sequence[str] | None, folded: bool) -> tuple[list[str], list[Change]]:
    """The layers to treat, and the convolutions that are left, with the reason."""
    parts = dict(model.named_modules(remove_duplicate=False))
    convolutions = [name for name, part in model.named_modules() if isinstance(part, CONVOLUTIONS)]
    if layers is None and not convolutions:
        raise ValueError("average: the model has no convolution; name the layers to repair, such as layers=['hidden']")
    names, left, seen = [], [], set()
    for name in convolutions if layers is None else layers:
        part = parts.get(name)
        if part is None:
            raise ValueError(f"average: layers names {name}, and the model has no such layer")
        if part in seen:  # by another of its names
            continue
        seen.add(part)
        why = _refusal(part) if folded or not isinstance(part, tuple(KINDS)) else None
        if why and layers is not None:
            raise ValueError(f"average: layers names {name}, a {type(part).__name__}: {why}")
        left += [Change(name, type(part).__name__, why_not=why)] if why else []
        names += [] if why else [name]
    return names, left


def _refusal(layer: nn.Module) -> str | None:
    """Why nothing can be folded into a layer, also where its weight has become plain."""
    holder = nn.Sequential(copy_model(layer))
    bake(holder)
    if is_plain(holder[0]):
        return None
    return specimen.refusal(holder[0]) or "only plain linears and convolutions fold"


def _goal(parents: list[Goal], weights: Sequence[float], uniform: bool, factor: float) -> Goal:
    mean, std = (sum(w * part for w, part in zip(weights, parts, strict=True)) for parts in zip(*parents, strict=True))
    if uniform:
        mean, std = mean.sign() * mean.abs().mean(), std.mean().expand_as(std)
    return Goal(factor * mean, factor * std)
