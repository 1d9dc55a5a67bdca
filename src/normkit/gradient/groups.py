"""Groups of a model's parameters for an optimizer, by what the parameters are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from normkit import catalog, check
from normkit.columns import number_of
from normkit.gradient._matrices import Hidden
from normkit.gradient.blockwise_lr import blockwise_groups
from normkit.kinds import OPTIMIZER
from normkit.parameters import MATRICES, ROLES, Roles, Row, roles


class ParamGroups(list[dict[str, Any]]):
    """Groups as torch's optimizers take them; they print as a table of :attr:`roles`, what each parameter is."""

    roles: Roles

    def __init__(self, groups: Sequence[dict[str, Any]], roles: Roles):
        super().__init__(groups)
        self.roles = roles

    def __str__(self) -> str:
        """Write the settings of each group, then the table."""
        return "\n".join([*map(_told, self), "", str(self.roles)])

    __repr__ = __str__


def _told(group: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in group.items() if key not in ("params", "roles"))
    tensors, count = number_of(len(group["params"]), "tensor"), sum(p.numel() for p in group["params"])
    return f"{', '.join(group['roles'])}: {tensors}, {number_of(count, 'number')}; {settings or 'as usual'}"


def param_groups(
    model: nn.Module,
    optimizer: Any = None,
    *,
    inputs: Sequence[Any] = (),
    weight_decay: float | None = None,
    override: Mapping[Any, str] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> ParamGroups:
    """Divide a model's parameters into groups for an optimizer, by what they are; see :func:`normkit.parameters.roles`.

    Gains, biases and other vectors do not decay. Beyond that it depends on the optimizer: ``muon`` and its kin get the
    matrices inside the model, and their Adam the rest; ``sinkgd``, ``swan`` and ``conda`` likewise; ``adamp`` and
    ``sgdp`` project no embedding, no head, and nothing that ``inputs`` show to depend on its length; ``blockwise-lr``
    gets blocks, where queries, keys, values and feedforwards can only be told by their names; ``agc`` leaves the head.

    Args:
        model: any model; what is not trained is left out.
        optimizer: its name or class, of the catalogue or of torch.optim; None: only decay matters.
        inputs: what the model is called with, to see which weights are scale-invariant and which is the head.
        weight_decay: of what decays; None: the optimizer's own.
        override: roles that you know better, by name, pattern, parameter or class of a module.
        settings: further settings for a role, over those of the rule: ``{"embedding": {"lr": 1e-3}}``.

    Returns:
        A list of groups for the optimizer, which prints as a table of what each parameter is.

    >>> model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 9))
    >>> [(group["roles"], group["use_muon"]) for group in param_groups(model, "muon")]
    [(['matrix'], True), (['embedding', 'head'], False), (['bias', 'gain'], False)]
    """
    found = roles(model, *inputs, override=override)
    name = _named(optimizer)
    rule = _rule(name)
    for role in settings or {}:
        check.choice("param_groups", "settings", role, tuple(ROLES))
    blocks = _blocks(model) if name == "blockwise-lr" else {}
    groups: dict[str, dict[str, Any]] = {}
    for row in found:
        own = {**_decay(row, weight_decay), **rule(row, blocks), **(settings or {}).get(row.role, {})}
        group = groups.setdefault(repr(sorted(own.items())), {"params": [], "roles": [], **own})
        group["params"].append(row.parameter)
        group["roles"] += [row.role] if row.role not in group["roles"] else []
    return ParamGroups(_in_order(groups.values()), found)


def _in_order(groups: Any) -> list[dict[str, Any]]:
    """Matrices first, vectors last."""
    return sorted(groups, key=lambda group: min(list(ROLES).index(role) for role in group["roles"]))


def _named(optimizer: Any) -> str:
    if optimizer is None:
        return ""
    if inspect.isclass(optimizer) and issubclass(optimizer, torch.optim.Optimizer):
        own = getattr(optimizer, "card", None)
        return own.name if own is not None else optimizer.__name__.lower()
    if isinstance(optimizer, str) and optimizer.lower() in {key.lower() for key in vars(torch.optim)} - {"muon"}:
        return optimizer.lower()
    return catalog.choose("param_groups", "optimizer", optimizer, OPTIMIZER).card.name


def _decay(row: Row, weight_decay: float | None) -> dict[str, Any]:
    if not row.decays:
        return {"weight_decay": 0.0}
    return {} if weight_decay is None else {"weight_decay": check.eps("param_groups", weight_decay, "weight_decay")}


def _blocks(model: nn.Module) -> dict[int, str]:
    return {id(p): group["block"] for group in blockwise_groups(model) for p in group["params"]}


def _block(row: Row, blocks: Mapping[int, str]) -> dict[str, Any]:
    """The block of a parameter: what it is goes before what its name says."""
    plain = {"embedding": "embed", "head": "embed", "gain": "norm"}.get(row.role)
    by_name = blocks.get(id(row.parameter), "other")
    return {"block": plain or (by_name if row.role == "bias" or by_name in ("qk", "vo", "ffn") else "other")}


def _projected(row: Row, blocks: Mapping[int, str]) -> dict[str, Any]:
    return {} if row.role in MATRICES and row.scale_invariant is not False else {"delta": 0.0}


def _by_muon(row: Row, blocks: Mapping[int, str]) -> dict[str, Any]:
    return {"use_muon": row.role in MATRICES}


def _without_adam(row: Row, blocks: Mapping[int, str]) -> dict[str, Any]:
    return {"use_adam": row.role not in MATRICES}


def _rule(name: str) -> Rule:
    """What a group of an optimizer says of a role; those of Muon's family learn of their matrices alike."""
    entry = catalog.card(name).entry if name in catalog.methods() else None
    plain: Rule = _by_muon if inspect.isclass(entry) and issubclass(entry, Hidden) else lambda row, blocks: {}
    return RULES.get(name, plain)


Rule = Callable[[Row, Mapping[int, str]], dict[str, Any]]
RULES: dict[str, Rule] = {
    "sinkgd": _without_adam,
    "swan": _without_adam,
    "conda": lambda row, blocks: {} if row.role in MATRICES else {"update_proj_gap": None},
    "adamp": _projected,
    "sgdp": _projected,
    "blockwise-lr": _block,
    "agc": lambda row, blocks: {"clipping": None} if row.role == "head" else {},
}
