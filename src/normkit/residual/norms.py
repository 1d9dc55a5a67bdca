"""The norms on a residual stream: which fit, how one is built by its name, and their fusion with an addition."""

from __future__ import annotations

from collections.abc import Callable, Collection

from torch import Tensor, nn

from normkit import catalog
from normkit.kinds import NORM

NormName = str | Callable[[int], nn.Module]


def make_norm(owner: object, norm: NormName, dim: int) -> nn.Module:
    """Build a norm over ``dim`` features: by its name in the catalogue, or by a function of the width."""
    name = type(owner).__name__
    if not isinstance(norm, str):
        if not callable(norm):
            raise TypeError(f"{name}: norm must be a name such as 'rmsnorm' or a function of the width, not {norm!r}")
        return norm(dim)
    choice = catalog.find(norm)
    if not fits_a_stream(choice.card, choice.arguments):
        needed = _needed(choice.card, choice.arguments)
        if needed and fits_a_stream(choice.card, [*choice.arguments, *needed]):
            how = ",".join(f"{one}=..." for one in needed)
            raise ValueError(f"{name}: norm={norm!r} has no {' and '.join(needed)}; write '{choice.card.name}:{how}'")
        usable = [card.name for card in catalog.members(NORM) if fits_a_stream(card)]
        raise ValueError(f"{name}: norm={norm!r} does not fit a residual stream; those that do: {', '.join(usable)}")
    return choice.create(dim)


def fits_a_stream(card: catalog.Card, names: Collection[str] = ()) -> bool:
    """Whether a method normalizes (..., C) and is built from its width and the arguments ``names`` alone."""
    if card.kind is not NORM or card.shape != "... C":
        return False
    first = next(iter(card.signature.parameters.values()))
    alone = not _needed(card, names) and all(layout.optional for layout in card.inputs.values())
    return first.default is first.empty and alone


def _needed(card: catalog.Card, names: Collection[str]) -> list[str]:
    """The arguments that a method is not built without, besides its width and ``names``."""
    _, *others = card.signature.parameters.values()
    return [p.name for p in others if p.default is p.empty and p.kind is not p.VAR_KEYWORD and p.name not in names]


def watched(module: nn.Module) -> bool:
    """Whether hooks of its own want to see the module called; one that only looks on is shown what it did."""
    hooks = module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return any(hooks) or not all(getattr(hook, "looks_on", False) for hook in module._forward_hooks.values())


def show(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Show hooks that only look on what the module made of ``x`` on a path that does not call it; return ``y``."""
    for hook in module._forward_hooks.values():
        hook(module, (x,), {}, y)
    return y


def add_then(norm: nn.Module, x: Tensor, branch: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return ``norm(x + branch)`` and ``x + branch``, in one pass over memory where the norm can.

    A norm that something watches (a hook) is called as a module, so that the hook sees it.
    """
    if branch is None:
        return norm(x), x
    if hasattr(norm, "add_norm") and not watched(norm):
        y, total = norm.add_norm(x, branch)  # type: ignore[operator]
        return show(norm, total, y), total
    total = x + branch
    return norm(total), total
