"""The library's own norms that probing does not explain, such as those that count their steps of training."""

from __future__ import annotations

from typing import Any

from torch import nn

from normkit.norm import Norm
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.match import Match, again, own_arguments

PLAIN = (bool, int, float, str, type(None))


def by_class(module: nn.Module) -> Match | None:
    """Return the method whose class a norm is, or None where it is none of the library's, or was changed since."""
    if not isinstance(module, Norm) or type(module) is not module.card.entry or specimen.refusal(module):
        return None
    kwargs = own_arguments(module.card, {name: module._now(name, value) for name, value in module.arguments.items()})
    named = {name: name for name in specimen.tensors(module)}
    evidence = ["its class is that of the method, and it holds what such a one holds"]
    match = Match(type(module).__name__, module.card.name, kwargs, evidence=evidence, carried=named, how="by class")
    try:
        match = again(match, module)
    except Exception:  # it holds something else, or what it was built with is not kept, such as a module
        return None
    return match if _same_form(module, match.module) else None


def is_special(module: nn.Module) -> bool:
    """Whether a norm of the library is of points of a manifold, or takes several tensors: no other replaces it."""
    return isinstance(module, Norm) and bool(module.card.shape.kind or specimen.further(module)[0])


def _same_form(module: Norm, like: Any) -> bool:
    """Whether two modules of one class have tensors of the same sizes, and as many parts, and the same settings."""
    forms = [
        (
            {name: tensor.shape for name, tensor in specimen.tensors(one).items()},
            [type(part) for part in one.modules()],
            {name: now for name in module.arguments if type(now := getattr(one, name, None)) in PLAIN},
        )
        for one in (module, like)
    ]
    return forms[0] == forms[1]
