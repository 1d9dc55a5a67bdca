"""The norms of a model that adapters train, and what they put in the place of its batch norms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils import parametrize

from normkit import check
from normkit.catalog import Card
from normkit.parameters import AROUND_ITS_FORWARD
from normkit.statistics import accurate

TORCHS = (_BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
PARTS = ("weight", "bias")
Names = Iterable[str] | None
LOST = (  # what another norm in the place of one does not do
    (parametrize.is_parametrized, "is parametrized: nk.weight.bake the model first"),
    *AROUND_ITS_FORWARD,
    (lambda norm: getattr(norm, "channels_last", False), "has its channels on the last axis, where axis 1 is wanted"),
)


def is_batch_norm(module: nn.Module) -> bool:
    """Tell whether a module is a batch norm of torch's or of the catalogue."""
    return isinstance(module, _BatchNorm) and not isinstance(module, _InstanceNorm)


def is_other(module: nn.Module) -> bool:
    """Tell whether a module keeps running moments over samples, and computes something else with them."""
    card = getattr(type(module), "card", None)
    over_samples = isinstance(card, Card) and "N" in card.over.axes and hasattr(module, "running_mean")
    return over_samples and not is_batch_norm(module)


def is_norm(module: nn.Module) -> bool:
    """Tell whether a module is a norm of torch's or of the catalogue."""
    card = getattr(type(module), "card", None)
    return isinstance(module, TORCHS) or (isinstance(card, Card) and card.kind.name == "norm")


def norms_of(owner: object, model: nn.Module, fits: Callable[[nn.Module], bool], names: Names) -> dict[str, nn.Module]:
    """Return the norms of a model by name: those that ``names`` lists, or all that ``fits``."""
    parts = dict(model.named_modules()) if isinstance(model, nn.Module) else {}
    if not parts:
        raise TypeError(f"{check.whose(owner)}: model must be a torch.nn.Module, not {type(model).__name__}")
    for name, part in parts.items():
        if is_other(part):
            kind = f"{name or 'model'} ({type(part).__name__})"
            raise ValueError(
                f"{check.whose(owner)}: {kind} does more than a batch norm: nk.swap it for batchnorm first"
            )
    if names is None:
        return {name: part for name, part in parts.items() if fits(part)}
    names = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in names if name not in parts]
    if unknown:
        raise ValueError(f"{check.whose(owner)}: norms names {unknown[0]!r}, which the model does not have")
    return {name: parts[name] for name in names}


def gains_and_shifts(norms: dict[str, nn.Module]) -> list[str]:
    """Return the names of the parameters that norms hold themselves."""
    return [f"{at}.{name}".removeprefix(".") for at, norm in norms.items() for name, _ in norm.named_parameters()]


def use_batch_statistics(norms: Iterable[nn.Module]) -> None:
    """Let batch norms use the statistics of the batch at hand, and drop the running ones."""
    for norm in filter(is_batch_norm, norms):
        norm.running_mean = norm.running_var = None  # type: ignore[assignment]
        norm.num_batches_tracked = None  # type: ignore[assignment]
        norm.track_running_stats = False  # type: ignore[assignment]


def replace_batch_norms(
    owner: object,
    model: nn.Module,
    norms: dict[str, nn.Module],
    make: Callable[[Any], nn.Module],
    *,
    moments: bool = True,
) -> dict[str, nn.Module]:
    """Put another norm in all places of each batch norm, with its gain and shift, and ``moments`` where it has some."""
    made = {name: _make(owner, name, norm, make, moments) for name, norm in norms.items()}
    new = {id(norms[name]): norm for name, norm in made.items()}
    for place, part in list(model.named_modules(remove_duplicate=False)):
        if id(part) in new:
            model.set_submodule(place, new[id(part)])
    return made


@torch.no_grad()
def _make(owner: object, name: str, old: Any, make: Callable[[Any], nn.Module], moments: bool) -> nn.Module:
    lost = [why for loses, why in LOST if loses(old)] if is_batch_norm(old) else []
    if lost:
        raise ValueError(f"{check.whose(owner)}: {name or 'model'} ({type(old).__name__}) {lost[0]}")
    own = "card" in vars(type(old))
    plain = (_BatchNorm.forward, nn.SyncBatchNorm.forward)  # which synchronizes nothing in evaluation
    more = isinstance(old, _BatchNorm) and type(old).forward not in plain and not own
    if not is_batch_norm(old) or more:
        what = "does more than normalize: nk.swap it first" if more else "is not a batch norm"
        raise ValueError(f"{check.whose(owner)}: {name} ({type(old).__name__}) {what}")
    if not name:
        raise ValueError(f"{check.whose(owner)}: model is a batch norm itself; put it into a torch.nn.Sequential")
    if old.weight is None or old.bias is None:
        raise ValueError(f"{check.whose(owner)}: {name} has no weight or no bias to train")
    if moments and old.running_mean is None:
        raise ValueError(f"{check.whose(owner)}: {name} has no running statistics: track_running_stats must be True")
    new = make(old).to(old.weight)
    state = old.state_dict()
    for key, value in new.named_buffers():
        if key in state and value.shape == state[key].shape:
            value.copy_(state[key])
    new.weight, new.bias = old.weight, old.bias  # which other parts of the model may hold, too
    return new.train(old.training)


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, share: float, wide: dict[int, Tensor]) -> dict[int, Tensor]:
    """Move the parameters of a teacher towards a student's; what both keep besides stays.

    ``wide`` is what the call before returned: parameters of half precision by their number, in float32, since rounding
    would swallow each small move.
    """
    kept = {}
    for i, (slow, fast) in enumerate(zip(teacher.parameters(), student.parameters(), strict=True)):
        new = (1 - share) * accurate(wide.get(i, slow)) + share * accurate(fast)
        slow.copy_(new)
        if new.dtype != slow.dtype:
            kept[i] = new
    return kept


def entropies(logits: Tensor) -> Tensor:
    """Return the entropy of each sample's softmax."""
    logs = torch.log_softmax(logits, 1)
    return cross_entropies(logs.exp(), logs)


def cross_entropies(p: Tensor, logs: Tensor) -> Tensor:
    """Return -p log q of each sample, summed over classes; one that is masked in both, by -inf, adds nothing."""
    return -(p * logs.masked_fill((p == 0) & logs.isneginf(), 0.0)).sum(1)
