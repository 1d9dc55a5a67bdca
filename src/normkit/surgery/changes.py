"""What was done to a model, site by site: a table to print, and plain values to keep."""

from __future__ import annotations

import importlib
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

from normkit.columns import aligned
from normkit.norm import Norm

SAME = ("fuse", "recognize")  # what leaves a model one that its library may open as what it was


@dataclass(frozen=True)
class Change:
    """One site: what it was and became, which tensors went over, how far results differ, and why it was left alone."""

    site: str
    was: str
    became: str | None = None
    carried: tuple[str, ...] = ()
    difference: float | None = None
    before: float | None = None
    after: float | None = None
    why_not: str | None = None


@dataclass(frozen=True)
class Report(Sequence[Change]):
    """The changes of one call, and the model that has them."""

    model: nn.Module
    changes: list[Change] = field(default_factory=list)

    def __getitem__(self, index):
        return self.changes[index]

    def __len__(self) -> int:
        return len(self.changes)

    @property
    def done(self) -> list[Change]:
        """The sites that were changed."""
        return [change for change in self.changes if change.became is not None]

    def to_dict(self) -> Any:
        """Return plain values: a list of changes, each a dictionary."""
        return [asdict(change) for change in self.changes]

    def __str__(self) -> str:
        rows = [("site", "was", "became", "difference", "time")]
        rows += [_cells(change) for change in self.changes]
        return "\n".join([*aligned(rows), f"{len(self.done)} of {len(self)} sites changed"])

    __repr__ = __str__


def _cells(change: Change) -> tuple[str, str, str, str, str]:
    difference = "" if change.difference is None else f"{change.difference:.0e}"
    time = f"{1e6 * change.before:.0f} to {1e6 * change.after:.0f} µs" if change.before and change.after else ""
    return change.site or "(itself)", change.was, change.became or f"left: {change.why_not}", difference, time


def replaced(
    owner: str,
    model: nn.Module,
    new: Mapping[str, nn.Module],
    inplace: bool,
    tensors: Mapping[str, nn.Parameter] | None = None,
) -> nn.Module:
    """Put modules, and parameters, into their places; return the model, or what took its place.

    A module goes into all places that hold the same one.
    """
    if "" in new and inplace:
        raise ValueError(
            f"{owner}: the model is itself what is replaced, and not in place: pass inplace=False and go on "
            "with the report's model"
        )
    if "" in new:
        return new[""]
    spots = {name: places(model, model.get_submodule(name)) for name in new}
    for name, module in new.items():
        for place in spots[name]:
            model.set_submodule(place, module)
    for name, parameter in (tensors or {}).items():
        path, _, last = name.rpartition(".")
        setattr(model.get_submodule(path), last, parameter)
    call_norms(model)
    if owner not in SAME:
        guard(model)
    return model


def guard(model: Any) -> None:
    """Let ``save_pretrained`` of a changed model write a folder that nobody opens as the old model."""
    if hasattr(model, "save_pretrained") and hasattr(getattr(model, "config", None), "save_pretrained"):
        model.save_pretrained = types.MethodType(_save_pretrained, model)


def _save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
    return importlib.import_module("normkit.surgery.keeping").save_pretrained(self, *args, **kwargs)


def call_norms(model: nn.Module) -> None:
    """Let torch's own encoders call their norms where these are no layer norms any more.

    In evaluation without gradients they read the norms' numbers instead, and work them out as layer norms themselves.
    """
    encoders = [
        part for part in model.modules() if isinstance(part, nn.TransformerEncoderLayer | nn.TransformerEncoder)
    ]
    for part in reversed(encoders):  # an encoder is named before its layers
        if isinstance(part, nn.TransformerEncoder):
            part.use_nested_tensor = part.use_nested_tensor and all(
                getattr(layer, "activation_relu_or_gelu", 0) for layer in part.layers
            )
        elif not (_readable(part.norm1) and _readable(part.norm2)):
            part.activation_relu_or_gelu = 0


def _readable(norm: nn.Module) -> bool:
    """Whether gain, shift and eps of a layer norm tell all about a module."""
    if not isinstance(norm, Norm):
        return isinstance(norm, nn.LayerNorm)
    vectors = dict(norm.named_parameters())
    plain = not norm.arguments.get("offset") and norm.arguments.get("heads") is None
    return norm.card.name == "layernorm" and {"weight", "bias"} <= set(vectors) and plain


def unrecognized(rest: Mapping[str, Any]) -> str:
    """What is said of modules that look like norms and are not recognized."""
    told = [f"{name or 'it'}, a {match.kind}, is not recognized: {match.why_not}" for name, match in rest.items()]
    more = f", and {len(told) - 1} more" if len(told) > 1 else ""
    return f"; {told[0]}{more}" if told else ""


def places(model: nn.Module, module: nn.Module) -> list[str]:
    """Every name by which a model holds a module."""
    return [name for name, part in model.named_modules(remove_duplicate=False) if part is module]


@torch.no_grad()
def take_over(model: nn.Module, other: nn.Module) -> None:
    """Give a model the numbers of another that has the same parts, as far as they are of the same sizes."""
    own = model.state_dict()
    for name, tensor in other.state_dict().items():
        if name in own and own[name].shape == tensor.shape:
            own[name].copy_(tensor)


def untie(model: nn.Module) -> None:
    """Keep libraries from tying a model's head to its embedding again when it is saved or loaded."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "tie_word_embeddings", False):
        config.tie_word_embeddings = False


def tied(model: nn.Module, name: str) -> list[str]:
    """The parameters elsewhere that are those of a module."""
    held = {id(p) for p in model.get_submodule(name).parameters()}
    named = model.named_parameters(remove_duplicate=False)
    return [other for other, p in named if id(p) in held and not other.startswith(f"{name}.")]
