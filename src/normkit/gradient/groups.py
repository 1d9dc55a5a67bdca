"""Groups of a model's parameters for an optimizer, by what the parameters are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from normkit import catalog, check
from normkit.columns import aligned, number_of
from normkit.gradient._matrices import Hidden
from normkit.gradient._parts import Parts, parts_of
from normkit.gradient.blockwise_lr import blockwise_groups
from normkit.kinds import OPTIMIZER
from normkit.parameters import MATRICES, ROLES, Roles, Row, fits, roles


class ParamGroups(list[dict[str, Any]]):
    """Groups as torch's optimizers take them; they print as a table of :attr:`roles`, what each parameter is.

    ``parts``: by the name of a weight, what its blocks are.
    """

    roles: Roles
    parts: dict[str, Parts]

    def __init__(self, groups: Sequence[dict[str, Any]], roles: Roles, parts: Mapping[str, Parts] | None = None):
        super().__init__(groups)
        self.roles, self.parts = roles, dict(parts or {})

    def __str__(self) -> str:
        """Write the settings of each group, then the table, and the parts of weights."""
        rows = [("weight", "parts"), *((name, str(parts)) for name, parts in self.parts.items())]
        return "\n".join([*map(_describe, self), "", str(self.roles), *(["", *aligned(rows)] if self.parts else [])])

    __repr__ = __str__


def _describe(group: Mapping[str, Any]) -> str:
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
    blocks: bool | Mapping[str, Sequence[int]] = True,
    by_heads: bool = False,
) -> ParamGroups:
    """Divide a model's parameters into groups for an optimizer, by what they are; see :func:`normkit.parameters.roles`.

    Gains, biases and other vectors do not decay. Beyond that it depends on the optimizer: ``muon`` and its kin get the
    matrices inside the model, and their Adam the rest; ``sinkgd``, ``swan`` and ``conda`` likewise; ``adamp`` and
    ``sgdp`` project no embedding, no head, and nothing that ``inputs`` show to depend on its length; ``blockwise-lr``
    gets blocks, where queries, keys, values and feedforwards can only be told by their names; ``agc`` leaves the head.

    ``muon`` steps a fused weight as its parts: queries, keys and values, gates and what they open, in any layout and
    for each expert of a stack. They are seen in a run of the model, on ``inputs`` or tokens, pictures or features that
    are made up. Where that fails, or parameters are sharded, and a name such as ``qkv`` suggests equal parts, those are
    taken, and the table says ``by its name only``.

    Args:
        model: any model; what is not trained is left out.
        optimizer: its name or class, of the catalogue or of torch.optim; None: only decay matters.
        inputs: what the model is called with, to see which weights are scale-invariant and which is the head.
        weight_decay: of what decays; None: the optimizer's own.
        override: roles that you know better, by name, pattern, parameter or class of a module.
        settings: further settings for a role, over those of the rule: ``{"embedding": {"lr": 1e-3}}``.
        blocks: whether fused weights are parts, or heights of row blocks that you know better, by name or pattern:
            ``{"*.qkv.weight": (64, 16, 16)}``.
        by_heads: make each head of queries, keys and values a part.

    Returns:
        A list of groups for the optimizer, which prints as a table of what each parameter is.

    >>> model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 9))
    >>> [(group["roles"], group["use_muon"]) for group in param_groups(model, "muon")]
    [(['matrix'], True), (['embedding', 'head'], False), (['bias', 'gain'], False)]
    """
    if not isinstance(blocks, bool | Mapping):
        raise TypeError(f"param_groups: blocks must be True, False or heights by name, not {blocks!r}")
    if not isinstance(by_heads, bool):
        raise TypeError(f"param_groups: by_heads must be True or False, not {by_heads!r}")
    found = roles(model, *inputs, override=override)
    name = _method_name(optimizer)
    rule = _rule(name)
    for role in settings or {}:
        check.choice("param_groups", "settings", role, tuple(ROLES))
    kinds = _blocks(model) if name == "blockwise-lr" else {}
    cuts = _cuts(name, model, inputs, found, blocks)
    groups: dict[str, dict[str, Any]] = {}
    for row in found:
        cut = cuts[row.name].settings(by_heads) if row.name in cuts else {}
        own = {**_decay(row, weight_decay), **rule(row, kinds), **cut, **(settings or {}).get(row.role, {})}
        group = groups.setdefault(repr(sorted(own.items())), {"params": [], "roles": [], **own})
        group["params"].append(row.parameter)
        group["roles"] += [row.role] if row.role not in group["roles"] else []
    return ParamGroups(_in_order(groups.values()), found, cuts)


def _cuts(name: str, model: nn.Module, inputs: Sequence[Any], rows: Roles, blocks: Any) -> dict[str, Parts]:
    """The parts of matrices, for an optimizer that steps blocks of them."""
    if blocks is False or name not in catalog.methods() or "blocks" not in catalog.card(name).signature.parameters:
        return {}
    weights = {row.name: row.parameter for row in rows if row.role in ("matrix", "experts")}
    seen = parts_of(model, inputs, weights)
    found = {name: seen[id(p)] for name, p in weights.items() if id(p) in seen}
    for pattern, heights in blocks.items() if isinstance(blocks, Mapping) else ():
        names = [name for name in weights if fits(name, pattern)]
        if not names:
            raise ValueError(f"param_groups: blocks[{pattern!r}] fits no matrix; they are {list(weights)}")
        found |= {name: _user_parts(name, weights[name], pattern, heights) for name in names}
    return found


def _user_parts(name: str, p: nn.Parameter, pattern: str, heights: Sequence[int]) -> Parts:
    if not isinstance(heights, Sequence):
        raise TypeError(f"param_groups: blocks[{pattern!r}] must be heights, a sequence of integers, not {heights!r}")
    sizes = tuple(check.size("param_groups", f"blocks[{pattern!r}]", height) for height in heights)
    if not sizes or p.shape[-2] % sum(sizes):
        raise ValueError(
            f"param_groups: blocks[{pattern!r}] of {list(sizes)} rows do not divide {name} of shape {tuple(p.shape)}"
        )
    return Parts(tuple(f"part {i + 1}" for i in range(len(sizes))), sizes, p.shape[-2] // sum(sizes), why="as given")


def _in_order(groups: Any) -> list[dict[str, Any]]:
    """Matrices first, vectors last."""
    return sorted(groups, key=lambda group: min(list(ROLES).index(role) for role in group["roles"]))


def _method_name(optimizer: Any) -> str:
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


def _project(row: Row, blocks: Mapping[int, str]) -> dict[str, Any]:
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
    "adamp": _project,
    "sgdp": _project,
    "blockwise-lr": _block,
    "agc": lambda row, blocks: {"clipping": None} if row.role == "head" else {},
}
