"""Groups of a model's parameters for an optimizer, by what the parameters are."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from normkit import catalog, check
from normkit.columns import aligned, number_of
from normkit.gradient._gains import INPUT, OUTPUT, places
from normkit.gradient._matrices import Hidden
from normkit.gradient._parts import Parts, parts_of, run_of
from normkit.gradient._sharded import is_sharded
from normkit.gradient._widths import READERS, Width, Widths, root_mean_square
from normkit.gradient.blockwise_lr import blockwise_groups
from normkit.kinds import OPTIMIZER
from normkit.parameters import MATRICES, ROLES, Roles, Row, fits, for_gradients, roles


class ParamGroups(list[dict[str, Any]]):
    """Groups as torch's optimizers take them; they print as a table of :attr:`roles`, what each parameter is.

    ``parts``: by the name of a weight, what its blocks are; ``widths``: what a parametrization makes of it.
    """

    roles: Roles
    parts: dict[str, Parts]
    widths: dict[str, Width]

    def __init__(
        self,
        groups: Sequence[dict[str, Any]],
        roles: Roles,
        parts: Mapping[str, Parts] | None = None,
        widths: Mapping[str, Width] | None = None,
    ):
        super().__init__(groups)
        self.roles, self.parts, self.widths = roles, dict(parts or {}), dict(widths or {})

    @torch.no_grad()
    def initialize(self) -> None:
        """Multiply weights, in place, so that they have the initial scale of the parametrization; zeros stay zeros.

        It is for a model that has just been built, before it is trained. A second call changes nothing.
        """
        if not self.widths:
            raise ValueError("param_groups: only groups with a parametrization have initial scales")
        if not any(width.scale is not None for width in self.widths.values()):
            raise ValueError("param_groups: base is on the meta device and has no scales; build it with its numbers")
        for row in self.roles:
            scale, now = self.widths[row.name].scale, root_mean_square(row.parameter)
            if scale is not None and now > 0:
                row.parameter.mul_(scale / now)

    def __str__(self) -> str:
        """Write the settings of each group, then the table, the parts of weights, and what widths make of them."""
        parts = [("weight", "parts"), *((name, str(parts)) for name, parts in self.parts.items())]
        widths = [("weight", "makes", "reads", "rate", "initial scale")]
        widths += [
            (name, str(w.made), str(w.read), f"x {w.rate:.4g}", "" if w.scale is None else f"{w.scale:.3g}")
            for name, w in self.widths.items()
        ]
        tables = [str(self.roles), *("\n".join(aligned(rows)) for rows in (parts, widths) if len(rows) > 1)]
        return "\n\n".join(["\n".join(map(_describe, self)), *tables])

    __repr__ = __str__


def _describe(group: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in group.items() if key not in ("params", "roles"))
    tensors, count = number_of(len(group["params"]), "tensor"), sum(p.numel() for p in group["params"])
    return f"{', '.join(group['roles'])}: {tensors}, {number_of(count, 'number')}; {settings or 'as usual'}"


@torch.inference_mode(False)
def param_groups(
    model: nn.Module,
    optimizer: Any = None,
    *,
    inputs: Sequence[Any] | torch.Tensor = (),
    weight_decay: float | Mapping[str, float] | None = None,
    override: Mapping[Any, str] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    blocks: bool | Mapping[str, Sequence[int]] = True,
    by_heads: bool = False,
    parametrization: str | None = None,
    base: nn.Module | int | None = None,
    lr: float | None = None,
) -> ParamGroups:
    """Divide a model's parameters into groups for an optimizer, by what they are; see :func:`normkit.parameters.roles`.

    Gains, biases and other vectors do not decay. Beyond that it depends on the optimizer: ``muon`` and its kin get the
    matrices inside the model, and their Adam the rest, kernels of convolutions that are depthwise or along one axis
    with it; ``sinkgd``, ``swan``, ``rmnp`` and ``conda`` likewise; ``adamp`` and ``sgdp`` project no embedding, no
    head, and nothing that ``inputs`` show to depend on its length; ``blockwise-lr`` gets blocks, where queries, keys,
    values and feedforwards differ only by their names; ``agc`` leaves the head. Of ``scion``, which shrinks weights by
    the rate, what does not decay is ``unconstrained``.

    ``muon`` steps a fused weight as its parts: queries, keys and values, gates and what they open, in any layout and
    for each expert of a stack. They are seen in a run of the model, on ``inputs`` or tokens, pictures or features that
    are made up. Where that fails, or parameters are sharded, and a name such as ``qkv`` suggests equal parts, those are
    taken, and the table says ``by its name only``. Other sharded weights are stepped whole: it warns by name, unless
    ``blocks`` says which are fused.

    ``parametrization`` lets a rate that was found at a small width be right at a large one. Of a parameter that makes m
    features of r, an embedding reading one, and a step has the rate lr times

        "mup"       Adam (r0 / r),    SGD (m / m0) (r0 / r),    Muon sqrt((m / m0) (r0 / r)) f0 / f
        "spectral"  Adam base / r,    SGD m / r,                Muon 1, with f = sqrt(m / r)

    where m0, r0 and f0 are those of ``base``, the model at the width where lr was found, and f is the factor for the
    shape that Muon has already. ``base`` of ``"spectral"`` is a number of features, at which Adam's rate is lr. Vectors
    and embeddings keep Adam's rate; their SGD's of ``"spectral"`` is multiplied by m / base. The decay is divided by
    what the rate is multiplied by. Initial scales are sent along and not set: ``groups.initialize()`` sets them. With
    s0 the scale of the weight in ``base`` they are

        "mup"       s0 sqrt(r0 / r) min(1, sqrt((m / m0) (r0 / r)))
        "spectral"  min(1, sqrt(m / r)) / sqrt(r)

    Keep the size of attention heads over widths, or divide scores by it and not by its root.

    Args:
        model: any model; what is not trained is left out.
        optimizer: its name or class, of the catalogue or of torch.optim; None: only decay matters.
        inputs: the tensor, or the arguments, that the model is called with, to see which weights are scale-invariant
            and which is the head.
        weight_decay: of what decays; None: the optimizer's own. Or by role, ``{"matrix": 0.1, "input gain": 0.1}``, the
            others as usual: ``"input gain"`` are gains of norms that linear maps alone read, ``"output gain"`` all
            other gains, which a run of the model shows.
        override: roles that you know better, by name, pattern, parameter or class of a module.
        settings: further settings for a role, over those of the rule: ``{"embedding": {"lr": 1e-3}}``.
        blocks: whether fused weights are parts, or heights of row blocks that you know better, by name or pattern:
            ``{"*.qkv.weight": (64, 16, 16)}``.
        by_heads: make each head of queries, keys and values a part. Optimizers without an argument ``blocks`` step
            whole weights, whatever these two are.
        parametrization: ``"mup"`` or ``"spectral"``; None: the rates of all widths are alike.
        base: the model at the base width, or of ``"spectral"`` that width.
        lr: the learning rate at the base, which each group gets its multiple of; None: the optimizer's usual one. What
            the Adam of ``muon`` steps gets a multiple of that Adam's usual rate. Rates in ``settings`` are multiplied
            as well.

    muP (Yang et al., 2022), arXiv 2203.03466; A Spectral Condition for Feature Learning (2023), arXiv 2310.17813; decay
    of gains: On Scale Vectors in Large Language Models (2026), arXiv 2605.26895.

    Returns:
        A list of groups for the optimizer, which prints as a table of what each parameter is.

    >>> model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 9))
    >>> [(group["roles"], group["use_muon"]) for group in param_groups(model, "muon")]
    [(['matrix'], True), (['embedding', 'head'], False), (['bias', 'gain'], False)]
    """
    _check_options(blocks, by_heads, parametrization, base, lr, settings)
    inputs = [for_gradients(x) for x in ((inputs,) if torch.is_tensor(inputs) else inputs)]
    rows = roles(model, *inputs, override=override)
    name = _method_name(optimizer)
    rule = _rule(name)
    kinds = _blocks(model) if name == "blockwise-lr" else {}
    cuts = _cuts(name, model, inputs, rows, blocks)
    decays = _decays(weight_decay, model, inputs, rows)
    widths = None
    if parametrization is not None:
        widths = Widths(parametrization, name, model, rows, base, lr, _products(model, inputs, rows))
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        cut = cuts[row.name].settings(by_heads) if row.name in cuts else {}
        role, decay = decays[row.name]
        decay = RESTING[name] if name in RESTING and decay.get("weight_decay") == 0 else decay
        own = {**decay, **rule(row, kinds), **cut, **(settings or {}).get(row.role, {})}
        own = own if widths is None else widths.settings(row, own)
        group = groups.setdefault(repr(sorted(own.items())), {"params": [], "roles": [], **own})
        group["params"].append(row.parameter)
        group["roles"] += [role] if role not in group["roles"] else []
    return ParamGroups(_in_order(groups.values()), rows, cuts, {} if widths is None else widths.rows)


def _check_options(blocks: Any, by_heads: Any, parametrization: Any, base: Any, lr: Any, settings: Any) -> None:
    if not isinstance(blocks, bool | Mapping):
        raise TypeError(f"param_groups: blocks must be True, False or heights by name, not {blocks!r}")
    if not isinstance(by_heads, bool):
        raise TypeError(f"param_groups: by_heads must be True or False, not {by_heads!r}")
    if parametrization is None and (base is not None or lr is not None):
        raise ValueError(f"param_groups: {'base' if base is not None else 'lr'} goes with a parametrization")
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(f"param_groups: settings must be settings by role, not {settings!r}")
    for role in settings or {}:
        check.choice("param_groups", "settings", role, tuple(ROLES))


def _products(model: nn.Module, inputs: Sequence[Any], rows: Roles) -> dict[int, bool]:
    """The weights that a run shows as a side of a product, and whether they are stored as (in, out)."""
    weights = {row.name: row.parameter for row in rows if row.role in (*READERS, "embedding")}
    weights = {name: p for name, p in weights.items() if p.dim() in (2, 3)}
    return {id(output.weight): output.axis == -1 for output in run_of(model, inputs, weights).outputs}


def _cuts(name: str, model: nn.Module, inputs: Sequence[Any], rows: Roles, blocks: Any) -> dict[str, Parts]:
    """The parts of matrices, for an optimizer that steps blocks of them."""
    if blocks is False or name not in catalog.methods() or "blocks" not in catalog.card(name).signature.parameters:
        return {}
    weights = {row.name: row.parameter for row in rows if row.role in ("matrix", "experts")}
    seen = parts_of(model, inputs, weights)
    cuts = {name: seen[id(p)] for name, p in weights.items() if id(p) in seen}
    whole = [name for name in weights if name not in cuts]
    if blocks is True and whole and is_sharded([*weights.values()]):
        warnings.warn(
            f"param_groups: {', '.join(whole[:3])}{f' and {len(whole) - 3} more' * (len(whole) > 3)} will be stepped "
            "whole, since no run shows which sharded weights are fused; call it before sharding, and give blocks="
            "{name: part.heights for name, part in groups.parts.items()} after, or blocks=False where none is fused",
            stacklevel=4,
        )
    for pattern, heights in blocks.items() if isinstance(blocks, Mapping) else ():
        names = [name for name in weights if fits(name, pattern)]
        if not names:
            raise ValueError(f"param_groups: blocks[{pattern!r}] fits no matrix; they are {list(weights)}")
        cuts |= {name: _user_parts(name, weights[name], pattern, heights) for name in names}
    return cuts


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
    order = {role: place for place, role in enumerate(ROLES)} | dict.fromkeys((INPUT, OUTPUT), [*ROLES].index("gain"))
    return sorted(groups, key=lambda group: min(order[role] for role in group["roles"]))


def _method_name(optimizer: Any) -> str:
    if optimizer is None:
        return ""
    if inspect.isclass(optimizer) and issubclass(optimizer, torch.optim.Optimizer):
        own = getattr(optimizer, "card", None)
        return own.name if own is not None else optimizer.__name__.lower()
    if isinstance(optimizer, str) and optimizer.lower() in {key.lower() for key in vars(torch.optim)} - {"muon"}:
        return optimizer.lower()
    return catalog.choose("param_groups", "optimizer", optimizer, OPTIMIZER).card.name


def _decays(
    weight_decay: float | Mapping[str, float] | None, model: nn.Module, inputs: Sequence[Any], rows: Roles
) -> dict[str, tuple[str, dict[str, Any]]]:
    """By the name of each parameter, its role, of gains a narrower one if decays ask for it, and the decay."""
    if not isinstance(weight_decay, Mapping):
        decay = None if weight_decay is None else check.eps("param_groups", weight_decay, "weight_decay")
        known = {} if decay is None else {"weight_decay": decay}
        return {row.name: (row.role, known if row.decays else {"weight_decay": 0.0}) for row in rows}
    for role, value in weight_decay.items():
        check.choice("param_groups", "weight_decay", role, (*ROLES, INPUT, OUTPUT))
        check.eps("param_groups", value, f"weight_decay[{role!r}]")
    sides = places(model, inputs, rows) if {INPUT, OUTPUT} & weight_decay.keys() else {}
    decays = {}
    for row in rows:
        role = sides.get(row.name, row.role)
        named = role if role in weight_decay else row.role
        usual = {} if row.decays else {"weight_decay": 0.0}
        decays[row.name] = role, {"weight_decay": weight_decay[named]} if named in weight_decay else usual
    return decays


def _blocks(model: nn.Module) -> dict[int, str]:
    return {id(p): group["block"] for group in blockwise_groups(model) for p in group["params"]}


def _block(row: Row, blocks: Mapping[int, str]) -> dict[str, Any]:
    """The block of a parameter: what it is goes before what its name says."""
    plain = {"embedding": "embed", "head": "embed", "gain": "norm"}.get(row.role)
    by_name = blocks.get(id(row.parameter), "other")
    return {"block": plain or (by_name if row.role == "bias" or by_name in ("qk", "vo", "ffn") else "other")}


def _project(row: Row, blocks: Mapping[int, str]) -> dict[str, Any]:
    return {} if row.role in MATRICES and row.scale_invariant is not False else {"delta": 0.0}


def _is_matrix(row: Row) -> bool:
    """Whether optimizers of matrices are for a parameter; they would step a kernel (out, in, k) as a stack of them."""
    return row.role in MATRICES and not row.depthwise and not (row.role == "conv" and row.parameter.dim() == 3)


def _by_muon(row: Row, blocks: Mapping[int, str]) -> dict[str, Any]:
    return {"use_muon": _is_matrix(row)}


def _without_adam(row: Row, blocks: Mapping[int, str]) -> dict[str, Any]:
    return {"use_adam": not _is_matrix(row)}


def _rule(name: str) -> Rule:
    """What a group of an optimizer says of a role; those of Muon's family learn of their matrices alike."""
    entry = catalog.card(name).entry if name in catalog.methods() else None
    plain: Rule = _by_muon if inspect.isclass(entry) and issubclass(entry, Hidden) else lambda row, blocks: {}
    return RULES.get(name, plain)


RESTING = {"scion": {"unconstrained": True}}  # what stops a decay that is no weight_decay
Rule = Callable[[Row, Mapping[int, str]], dict[str, Any]]
RULES: dict[str, Rule] = {
    "sinkgd": _without_adam,
    "swan": _without_adam,
    "rmnp": _without_adam,
    "conda": lambda row, blocks: {} if _is_matrix(row) else {"update_proj_gap": None},
    "adamp": _project,
    "sgdp": _project,
    "blockwise-lr": _block,
    "agc": lambda row, blocks: {"clipping": None} if row.role == "head" else {},
}
