"""Optimizers by name, the catalogue's and torch's, each with the learning rate that a search begins with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from normkit import catalog
from normkit.choice import parsed
from normkit.kinds import OPTIMIZER
from normkit.kinds.arguments import near
from normkit.parameters import hidden_matrices, roles

Build = Callable[..., torch.optim.Optimizer]
USUAL_RATE = {"adamw": 3e-3, "adam": 3e-3, "sgd": 0.1, "muon": 0.02}
USUAL_ARGUMENTS = {"sgd": {"momentum": 0.9}}


def optimizer_for(name: str) -> tuple[Build, dict[str, Any]]:
    """Find an optimizer, a method of the catalogue or a class of ``torch.optim``; case does not matter.

    A method's other name, ``muon-moonlight``, brings its arguments, but for rate and decay, which a comparison sets.
    """
    plain, arguments = parsed(name)
    entry, brought = _find(plain.lower())
    if not _steps_alone(entry):
        known: dict[str, Any] = {**_of_torch(), **{card.name: card.entry for card in catalog.members(OPTIMIZER)}}
        usable = [name for name in known if _steps_alone(known[name])]
        meant = f"did you mean {close[0]!r}? " if (close := near(plain.lower(), usable)) else ""
        raise ValueError(f"no optimizer {plain!r}; {meant}there are {', '.join(usable)}")
    return entry, {k: v for k, v in brought.items() if k not in ("lr", "weight_decay")} | arguments


def _find(plain: str) -> tuple[Any, dict[str, Any]]:
    """What a name stands for, None where nothing has it, and the arguments that it brings."""
    if plain in catalog.methods():
        return catalog.card(plain).entry, {}
    if plain in _of_torch():
        return _of_torch()[plain], {}
    try:
        choice = catalog.find(plain)
    except ValueError:
        return None, {}
    return choice.card.entry, dict(choice.arguments)


def _of_torch() -> dict[str, Any]:
    return {name.lower(): entry for name, entry in vars(torch.optim).items()}


def _steps_alone(optimizer: Any) -> bool:
    """Whether it is an optimizer with a learning rate whose step needs no function that computes the loss again."""
    if not (inspect.isclass(optimizer) and issubclass(optimizer, torch.optim.Optimizer)):
        return False
    takes = inspect.signature(optimizer).parameters
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return "lr" in takes and (closure is None or closure.default is None)


def usual_rate(name: str) -> float:
    """Return the learning rate that a search begins with: for small models, or the optimizer's own default."""
    plain, arguments = parsed(name)
    brought = {"lr": inspect.signature(optimizer_for(name)[0]).parameters["lr"].default, **_find(plain.lower())[1]}
    return float(arguments.get("lr", USUAL_RATE.get(plain.lower(), brought["lr"])))


def make_optimizer(name: str, model: nn.Module, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """Build an optimizer; weight decay, where it has such, is for what decays by :func:`normkit.parameters.roles`.

    One that takes matrices only gets those inside the model, and AdamW the rest, whose rate stands to its usual one
    as that of the first does.
    """
    build, named = optimizer_for(name)
    arguments = {**USUAL_ARGUMENTS.get(parsed(name)[0].lower(), {}), **named, "lr": lr}
    weights = [p for p in model.parameters() if p.requires_grad]
    decaying = {id(row.parameter) for row in roles(model) if row.decays}
    if not takes_matrices_only(build, arguments):
        return _build_groups(build, weights, arguments, weight_decay, decaying)
    matrices = hidden_matrices(model)
    if not matrices:
        raise ValueError(f"optimizer {name!r} takes matrices only, and the model has none inside it")
    inside = {id(p) for p in matrices}
    rest = [p for p in weights if id(p) not in inside]
    first = _build_groups(build, matrices, arguments, weight_decay, decaying)
    if not rest:
        return first
    share = USUAL_RATE["adamw"] / usual_rate(name)
    return Joint(first, _build_groups(torch.optim.AdamW, rest, {"lr": lr * share}, weight_decay, decaying, share=share))


def _build_groups(
    build: Build,
    weights: list[nn.Parameter],
    arguments: dict[str, Any],
    weight_decay: float,
    decaying: set[int],
    **own: Any,
) -> torch.optim.Optimizer:
    """Build an optimizer with a group for what decays and one for the rest; ``own`` is kept in each group."""
    groups: list[dict[str, Any]] = [{"params": weights}]
    if "weight_decay" in inspect.signature(build).parameters and "weight_decay" not in arguments:
        groups = [
            {"params": [p for p in weights if id(p) in decaying], "weight_decay": weight_decay},
            {"params": [p for p in weights if id(p) not in decaying], "weight_decay": 0.0},
        ]
    return build([{**group, **own} for group in groups if group["params"]], **arguments)


def takes_matrices_only(build: Build, arguments: dict[str, Any]) -> bool:
    """Whether an optimizer steps a matrix and refuses a vector, which is tried.

    >>> takes_matrices_only(torch.optim.Muon, {"lr": 0.1}), takes_matrices_only(torch.optim.AdamW, {"lr": 0.1})
    (True, False)
    """
    return _steps(build, arguments, (2, 2)) and not _steps(build, arguments, (2,))


def _steps(build: Build, arguments: dict[str, Any], shape: tuple[int, ...]) -> bool:
    weight = nn.Parameter(torch.ones(shape))
    weight.grad = torch.ones(shape)
    try:
        build([weight], **arguments).step()
    except Exception:  # each optimizer has its own way to refuse
        return False
    return True


class Joint(torch.optim.Optimizer):
    """Several optimizers as one: it steps them all, and its state and groups are theirs."""

    def __init__(self, *parts: torch.optim.Optimizer):
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._hand_out()

    def _hand_out(self) -> None:
        """Let the parts work on this optimizer's own groups and state."""
        groups = iter(self.param_groups)
        for part in self.parts:
            part.param_groups = [next(groups) for _ in part.param_groups]
            part.state = self.state

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step all parts."""
        loss = None if closure is None else closure()
        for part in self.parts:
            part.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a state."""
        super().load_state_dict(state_dict)
        self._hand_out()
