"""What is known of a model and its optimizer without a step: shown beside what was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils.parametrize import type_before_parametrizations
from torch.optim import Optimizer
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from normkit.gradient._muon import FACTORS, factor
from normkit.ops.sharded import is_sharded
from normkit.parameters import roles
from normkit.watching.signals.norm import eps_of
from normkit.watching.sites import BLOCK, attends, blocks, is_norm, matrices, sites

EVEN = 1.8  # the kurtosis of an even distribution, as torch draws its layers; no training leaves one
FEWEST_DRAWN, MOST_DRAWN = 256, 2**16  # entries of which it is taken
ALIKE = 0.5  # the correlation of a row with the next, far above chance; of sinusoids it is 0.77 and more
BY_PARAMETER = ("shapes", "group_of", "orthogonalized", "step_lengths", "dtypes_of")  # of the facts
WRAPPERS = ("_orig_mod.", "module.")
INNER = "._orig_mod"  # of a part that was compiled on its own


def bare_name(name: str) -> str:
    """Return a name without what compiling and wrapping put before it.

    >>> bare_name("_orig_mod.layers.0"), bare_name("module."), bare_name("layers.0._orig_mod.norm")
    ('layers.0', '', 'layers.0.norm')
    """
    name = name.replace(INNER, "") if name != "_orig_mod" else ""
    for prefix in WRAPPERS:
        name = name.removeprefix(prefix)
    return name


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by plain names."""
    return {bare_name(name): p for name, p in model.named_parameters() if p.requires_grad}


def shares(model: nn.Module, optimizers: Sequence[Optimizer]) -> list[dict[str, nn.Parameter]]:
    """Return the parameters that each optimizer moves; those that none holds are with the first."""
    held = [{id(p) for group in optimizer.param_groups for p in group["params"]} for optimizer in optimizers]
    owner = {key: number for number, keys in reversed([*enumerate(held)]) for key in keys}
    parts: list[dict[str, nn.Parameter]] = [{} for _ in optimizers]
    for name, p in trainable(model).items():
        parts[owner.get(id(p), 0)][name] = p
    return parts


def optimizers(owner: str, model: nn.Module, several: Any) -> list[Optimizer]:
    """Return the optimizers handed in, unwrapped; each must hold some parameter of the model."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{owner}: model must be a torch.nn.Module, not {type(model).__name__}")
    own = {id(p) for p in model.parameters()}
    if not own:
        raise ValueError(f"{owner}: model {type(model).__name__} has no parameters, so nothing in it is trained")
    listed = [] if several is None else list(several) if isinstance(several, list | tuple) else [several]
    optims = []
    for optimizer in listed:
        while isinstance(getattr(optimizer, "optimizer", None), Optimizer):
            optimizer = optimizer.optimizer  # Accelerate's and others' wrappers
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{owner}: optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}")
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not held & own:
            raise ValueError(
                f"{owner}: {type(optimizer).__name__} holds none of the parameters of {type(model).__name__}; "
                "was it made of another model, or of this one before it was replaced?"
            )
        optims.append(optimizer)
    return optims


def of(model: nn.Module, optimizers: Sequence[Optimizer], every: int) -> dict[str, Any]:
    """Return what there is to know, as plain values."""
    groups = [(optimizer, group) for optimizer in optimizers for group in optimizer.param_groups]
    place = {id(p): number for number, (_, group) in enumerate(groups) for p in group["params"]}
    site_list = sites(model)
    steps = muon_steps(model, groups)
    return {
        "model": type(model).__name__,
        "every": every,
        "parameters": sum(p.numel() for p in model.parameters()),
        "blocks": [bare_name(name) for name, _ in blocks(model)],
        "single": [bare_name(name) for name, m in blocks(model) if matrices(m) < 2],
        "kinds": {bare_name(site.name): site.what for site in site_list},
        "classes": {bare_name(site.name): type_before_parametrizations(site.module).__name__ for site in site_list},
        "attends": [bare_name(name) for name, m in model.named_modules() if attends(m)],
        "resets": [bare_name(s.name) for s in site_list if hasattr(s.module, "reset_parameters")],
        "clips": can_clip(model),
        "eps": {bare_name(s.name): eps for s in site_list if (eps := eps_of(s.module)) is not None and s.what != BLOCK},
        "momenta": {
            bare_name(s.name): m for s in site_list if isinstance(m := getattr(s.module, "momentum", None), float)
        },
        "dropouts": {
            bare_name(name): m.p for name, m in model.named_modules() if isinstance(m, _DropoutNd) and m.p > 0
        },
        "shapes": {name: list(p.shape) for name, p in trainable(model).items()},
        "groups": [_group(optimizer, group) for optimizer, group in groups],
        "group_of": {name: place[id(p)] for name, p in trainable(model).items() if id(p) in place},
        "orthogonalized": {name: role for name, (role, _) in steps.items()},
        "step_lengths": {name: length for name, (_, length) in steps.items() if length},
        "dtypes_of": {name: str(p.dtype).removeprefix("torch.") for name, p in trainable(model).items()},
        "frozen": list(_frozen(model)),
        "left_out": [name for name, p in trainable(model).items() if groups and id(p) not in place],
    }


def trained(model: nn.Module, optimizers: Sequence[Optimizer]) -> tuple[Any, ...]:
    """Return what changes where parameters are frozen, unfrozen or added to an optimizer."""
    sizes = [len(group["params"]) for optimizer in optimizers for group in optimizer.param_groups]
    return tuple(p.requires_grad for p in model.parameters()), tuple(sizes)


def again(known: dict[str, Any], model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Any]:
    """Return the facts after such a change: what was trained stays known, and a layer frozen later is so on purpose."""
    new = of(model, optimizers, known["every"])
    now_frozen = dict(new["frozen"])
    both = {key: {**new[key], **{k: v for k, v in known[key].items() if k not in new[key]}} for key in BY_PARAMETER}
    both["group_of"] = {name: place for name, place in both["group_of"].items() if place < len(new["groups"])}
    return {
        **known,
        **both,
        "groups": new["groups"],
        "frozen": [(name, even) for name, even in known["frozen"] if name in now_frozen],
        "left_out": new["left_out"],
    }


def can_clip(model: nn.Module) -> bool:
    """Whether the scores of a model's attention can be clipped: by its class, without norms of queries and keys."""
    from normkit.transformer.score_clip import ScoreClip

    if not any(map(attends, model.modules())):
        return False
    try:
        ScoreClip(model).close()
    except ValueError:
        return False
    return True


def muon_steps(model: nn.Module, groups: Sequence[tuple[Optimizer, dict[str, Any]]]) -> dict[str, tuple[str, float]]:
    """Return the parameters whose steps Muon or its kin make, with their roles and the length of a step at a rate of 1.

    The length is 0 where it is not known. A last matrix inside a block is no head.
    """
    held = {id(p): (opt, group) for opt, group in groups if _is_muon(opt, group) for p in group["params"]}
    rows = roles(model) if held else ()
    inside = tuple(f"{name}." for name, m in blocks(model) if matrices(m) > 1)
    steps = {}
    for row in rows:
        if id(row.parameter) in held:
            role = "matrix" if row.role == "head" and row.name.startswith(inside) else row.role
            role = "depthwise" if row.depthwise else role
            steps[bare_name(row.name)] = role, _length(row.parameter, *held[id(row.parameter)])
    return steps


def _is_muon(optimizer: Optimizer, group: dict[str, Any]) -> bool:
    kinds = (kind.__name__.lower() for kind in type(optimizer).__mro__)
    return any("muon" in kind for kind in kinds) and bool(group.get("use_muon", True))


def _length(p: Tensor, optimizer: Optimizer, group: dict[str, Any]) -> float:
    """The length of a step of Muon's at a rate of 1."""
    torchs = isinstance(optimizer, getattr(torch.optim, "Muon", ()))
    rule = (group.get("adjust_lr_fn") or "original") if torchs else group.get("adjust_lr")
    if p.dim() != 2 or rule not in FACTORS or group.get("blocks") or group.get("weight_decay"):
        return 0.0
    if rule == "match_rms":
        return 0.2 * p.numel() ** 0.5
    return factor(rule, *p.shape) * min(p.shape) ** 0.5


def _frozen(model: nn.Module) -> Iterator[tuple[str, bool]]:
    """Return the matrices of layers that get no gradient, and whether each looks as it was drawn: evenly in a range.

    What is quantized, or a table whose rows follow from one another, as of sinusoidal positions, is fixed on purpose.
    """
    for layer, module in model.named_modules():
        for name, weight in module.named_parameters(recurse=False):
            quantized = not is_sharded(weight) and is_traceable_wrapper_subclass(weight)
            if "weight" in name and weight.dim() > 1 and not (weight.requires_grad or quantized or is_norm(module)):
                rows = weight.detach()[:MOST_DRAWN].float().flatten(1)
                rows = rows[: max(2, MOST_DRAWN // max(1, rows.shape[1]))]
                apart, w = rows - rows.mean(), rows.flatten()[:MOST_DRAWN]
                if (apart[1:] * apart[:-1]).mean() > ALIKE * apart.square().mean():
                    continue
                even = len(w) >= FEWEST_DRAWN and abs(float(w.pow(4).mean() / w.square().mean().square()) - EVEN) < 0.1
                yield bare_name(f"{layer}.{name}" if layer else name), even


def _group(optimizer: Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    name, decoupled = type(optimizer).__name__, bool(group.get("decoupled_weight_decay"))
    settings: dict[str, Any] = {"optimizer": "AdamW" if decoupled and name == "Adam" else name, "decoupled": decoupled}
    for key in ("lr", "momentum", "weight_decay", "eps"):
        value = group.get(key)
        settings[key] = float(value) if isinstance(value, int | float | Tensor) and not isinstance(value, bool) else 0.0
    return settings


def rates(optimizers: Sequence[Optimizer]) -> list[Tensor]:
    """Return the learning rate of each group; one that is a tensor is not waited for."""
    lrs = [group.get("lr", 0.0) for optimizer in optimizers for group in optimizer.param_groups]
    return [(rate.detach() if isinstance(rate, Tensor) else torch.tensor(rate, device="cpu")).float() for rate in lrs]
