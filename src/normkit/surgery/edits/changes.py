"""What was done to a model, site by site: a table to print, and plain values to keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

from normkit.columns import aligned
from normkit.surgery.edits.edit import Edit, all_places, edits_in


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

    @property
    def edits(self) -> list[Edit]:
        """What was done to the model so far, as values."""
        return edits_in(self.model)

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


def norm_words(match: object) -> str:
    """What a norm was recognized as, without the class that it has."""
    return str(match).partition(": ")[2]


def name_others(rest: Mapping[str, Any]) -> str:
    """The lines on modules that look like norms and are not recognized."""
    sentences = [f"{name or 'it'}, a {match.kind}, is not recognized: {match.why_not}" for name, match in rest.items()]
    more = f", and {len(sentences) - 1} more" if len(sentences) > 1 else ""
    return f"; {sentences[0]}{more}" if sentences else ""


@torch.inference_mode()  # in which those of a model that was made within it can be written, too
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


def ties_of(model: nn.Module, names: Iterable[str]) -> dict[str, list[str]]:
    """The parameters of other modules that are those of a module, for each module of these names."""
    held, named, ties = all_places(model), dict[int, list[str]](), dict[str, list[str]]()
    for other, p in model.named_parameters(remove_duplicate=False):
        named.setdefault(id(p), []).append(other)
    for name in names:
        part = model.get_submodule(name)
        own = tuple(f"{place}." for place in held.get(part, ()))
        ties[name] = [other for p in part.parameters() for other in named.get(id(p), ()) if not other.startswith(own)]
    return ties
