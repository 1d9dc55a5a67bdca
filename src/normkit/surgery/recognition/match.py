"""What a module was recognized as, and the table of a model's sites."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from normkit import catalog
from normkit.catalog import Card
from normkit.columns import aligned
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.halves import HALVES
from normkit.surgery.recognition.specimen import carry, carry_counts
from normkit.threads import processor_by_default


@dataclass(frozen=True)
class Match:
    """What a module was found to be: a claim, and the evidence for it.

    ``kind`` is the module's class.

    ``name`` and ``kwargs`` build it by :func:`normkit.create`; ``module`` is it, with the parameters carried over.
    ``error`` is the largest difference in each type, relative to the largest number of its row; ``evidence`` says what
    was tried. ``carried`` names each of its tensors and the module's that it took; ``behind`` the module's own layers
    that act on what was normalized, such as timm's activations, which ``module`` has as well, behind the norm. Where
    there is no match, ``name`` is None and ``why_not`` speaks of the nearest candidate. ``how`` says where the verdict
    is from: ``probed``; ``remembered`` of a module of the same source and configuration; ``known``, of a class of the
    same source that was probed at several sizes before this release. A norm of the library that probing does not
    explain is named ``by class``. ``sized`` is whether its width is known.
    """

    kind: str
    name: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    module: nn.Module | None = None
    error: dict[str, float] = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)
    why_not: str | None = None
    carried: dict[str, str] = field(default_factory=dict)
    behind: list[str] = field(default_factory=list)
    sized: bool = True
    how: str = "probed"

    def __bool__(self) -> bool:
        return self.name is not None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, without the module."""
        names = ("kind", "name", "kwargs", "error", "evidence", "why_not", "carried", "behind", "sized", "how")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        if not self:
            return f"{self.kind}: not recognized: {self.why_not}"
        written = ", ".join(f"{k}={v!r}" for k, v in self.kwargs.items())
        return f"{self.kind}: {' + '.join([f'{self.name}({written})', *self.behind])}"


def is_layer_norm(name: str | None, kwargs: Mapping[str, Any]) -> bool:
    """Whether a method is layer norm as torch has it, but for its gain: eps and the biased variance under the root."""
    otherwise = kwargs.get("unbiased") or kwargs.get("heads") or not kwargs.get("eps_inside", True)
    return name == "layernorm" and not otherwise


class Recognized(Mapping[str, Match]):
    """The sites of a model by their modules' names: what is recognized, and what looks like a norm and is not."""

    def __init__(self, sites: Mapping[str, Match]):
        self._sites = dict(sites)

    def __getitem__(self, name: str) -> Match:
        return self._sites[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sites)

    def __len__(self) -> int:
        return len(self._sites)

    @property
    def found(self) -> dict[str, Match]:
        """The sites that are recognized."""
        return {name: match for name, match in self._sites.items() if match}

    @property
    def rest(self) -> dict[str, Match]:
        """The modules that look like norms and are not recognized."""
        return {name: match for name, match in self._sites.items() if not match}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {name: match.to_dict() for name, match in self._sites.items()}

    def __str__(self) -> str:
        rows = [("site", "class", "what it is", "float32", "half", "how")]
        for name, match in self._sites.items():
            whole = match.error.get("float32", math.nan)
            half = max((match.error[str(h)[6:]] for h in HALVES if str(h)[6:] in match.error), default=math.nan)
            apart = _rounded(whole), _rounded(half)
            rows.append((name, match.kind, str(match).partition(": ")[2], *apart, match.how))
        return "\n".join([*aligned(rows), f"{len(self.found)} recognized, {len(self.rest)} not"])

    __repr__ = __str__


def _rounded(error: float) -> str:
    """Write a difference; nothing where none was measured."""
    return "" if math.isnan(error) else f"{error:.0e}"


class Followed(nn.Module):
    """A norm, and the layers of the user's module that act on what it gives."""

    def __init__(self, norm: nn.Module, layers: Sequence[nn.Module]):
        super().__init__()
        self.norm, self.layers = norm, nn.ModuleList(layers)

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        """Normalize, then go on."""
        y = self.norm(x, *others)
        for layer in self.layers:
            y = layer(y)
        return y


def again(match: Match, module: nn.Module) -> Match:
    """The same verdict for another module of the same kind, with its own numbers."""
    if match.name is None:
        return match
    return dataclasses.replace(match, module=build(match, module))


def own_arguments(card: Card, arguments: Mapping[str, Any], always: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments that are not as they would be by default, with the width and those that are ``always`` named."""
    takes, named = card.signature.parameters, {*always, card.width.name if card.width is not None else ""}
    return {
        name: value
        for name, value in arguments.items()
        if name in named or name not in takes or takes[name].default != value
    }


def begun(match: Match) -> nn.Module:
    """Build what a module was found to be, as it begins, on the processor."""
    with processor_by_default():
        return catalog.find(match.name).create(**match.kwargs)  # type: ignore[arg-type]


def build(match: Match, module: nn.Module) -> nn.Module:
    """Build what a module was found to be, with its numbers, its type, its place and its mode."""
    theirs, norm = specimen.tensors(module), begun(match)
    own = next(iter(theirs.values()), None)
    if own is not None:
        norm = norm.to(device=own.device, dtype=own.dtype)
    ours = specimen.tensors(norm)
    carry(ours, theirs, match.carried)
    carry_counts(norm, module)
    for name, source in match.carried.items():
        ours[name].requires_grad_(theirs[source].requires_grad)
    layers = [module.get_submodule(name) for name in match.behind]
    return (Followed(norm, layers) if layers else norm).train(module.training)
