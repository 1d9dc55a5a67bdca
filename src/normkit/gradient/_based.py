"""Optimizers that change the gradient, or the weight, around another optimizer's step."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from normkit import catalog, check
from normkit.gradient._optimizer import Groups, Optimizer, listed, plain_rate, tensors
from normkit.kinds import OPTIMIZER

Base = Callable[..., torch.optim.Optimizer]


def of_torch() -> dict[str, Any]:
    """The optimizers of ``torch.optim``, by their names in small letters."""
    classes = {key.lower(): value for key, value in vars(torch.optim).items() if inspect.isclass(value)}
    return {key: value for key, value in classes.items() if value is not torch.optim.Optimizer}


def base_named(owner: object, name: Any, argument: str = "base") -> Base:
    """Return an optimizer of the catalogue, with the arguments that a name brings, or of ``torch.optim``, in any case.

    >>> base_named("agc", "AdamW").__name__, base_named("agc", "sgdp").__name__
    ('AdamW', 'SGDP')
    """
    known = of_torch()
    lower = name.lower() if isinstance(name, str) else name
    if isinstance(lower, str) and lower in known and lower not in catalog.methods():
        return known[lower]
    try:
        choice = catalog.choose(owner, argument, lower, OPTIMIZER)
        return functools.partial(choice.card.entry, **choice.arguments) if choice.arguments else choice.card.entry
    except ValueError:
        own = {card.name for card in catalog.members(OPTIMIZER)}
    return check.choice(owner, argument, name, sorted(own | known.keys()))


class Based(Optimizer):
    """An optimizer around another one, which has the same groups and the same state.

    A method says what it does to gradients (:meth:`changed`), and after the step (:meth:`finish`). The gradients on the
    parameters stay as they are.
    """

    apart: Mapping[str, Any] = MappingProxyType({})  # the base's arguments that are no settings of its groups
    beside: frozenset[str] = frozenset()  # what is kept of a parameter that is no state of the base
    renamed: Mapping[str, str] = MappingProxyType({})  # the method's settings that bases have as well: names in groups

    def __init__(self, params: Groups, base: str, own: dict[str, Any], options: dict[str, Any]):
        self.base = base
        check.number(self, "lr", plain_rate(self, options["lr"]), 0.0)
        if options.get("differentiable"):
            raise ValueError(f"{type(self).__name__}: differentiable=True is not for it: its steps are not recorded")
        build = base_named(self, base)
        parameters = inspect.signature(build).parameters
        for key in options:
            if key not in parameters:
                raise TypeError(f"{type(self).__name__}: the base {base!r} takes no argument {key!r}")
        inner = build([torch.nn.Parameter(torch.zeros(2, 2, device="cpu"))], **options)
        self.apart = {name: value for name, value in options.items() if name in vars(inner)}
        shared = own.keys() & inner.defaults.keys() - {"maximize"}
        self.renamed = {**{name: f"{type(self).__name__.lower()}_{name}" for name in shared}, **self.renamed}
        super().__init__(params, **{**inner.defaults, **{self.key(name): value for name, value in own.items()}})
        self._take_hooks(inner)

    def _take_hooks(self, base: torch.optim.Optimizer) -> None:
        """Call the base's own hooks after this one's step."""
        for hook in base._optimizer_step_post_hooks.values():
            self.register_step_post_hook(hook)

    def key(self, name: str) -> str:
        """What groups call a setting of the method."""
        return self.renamed.get(name, name)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group with the settings that the base gives it."""
        group = dict(param_group)
        for name, own in self.renamed.items():
            if name in group and own not in group:
                group[own] = group.pop(name)
        group = self._own(group)
        base, params = self._build_base(), listed(group["params"])
        base.add_param_group({**group, "params": tensors(params)})
        super().add_param_group({**base.param_groups[-1], "params": params})

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), "base": self.base, "apart": self.apart, "renamed": self.renamed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "defaults" in state:  # of a copy, which torch leaves without hooks
            self._take_hooks(self._build_base())

    def complete(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        """Return a group that is loaded; in older ones a setting of one name was the method's and the base's."""
        older = {key: group[name] for name, key in self.renamed.items() if key not in group and name in group}
        return super().complete({**group, **older}, own)

    def read(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state of a file, which the base reads its own way, as of older states, and may refuse."""
        state, base = super().read(state), self.inner()
        kept: Any = {p: {name: own[name] for name in own.keys() - self.beside} for p, own in state["state"].items()}
        base.__setstate__({"state": kept, "param_groups": state["param_groups"]})
        for p, own in state["state"].items():
            own |= base.state[p]
        return {"state": state["state"], "param_groups": base.param_groups}

    @property
    def later(self) -> frozenset[str]:  # type: ignore[override]
        """What older groups lack: settings that torch's bases fill in, and those of the base."""
        filled_in = {"amsgrad", "capturable", "decoupled_weight_decay", "fused"}
        return getattr(self.inner(), "later", frozenset()) | filled_in

    @property
    def exact(self) -> frozenset[str]:  # type: ignore[override]
        """What stays in float32: what does so in the base."""
        return getattr(self.inner(), "exact", frozenset())

    def inner(self) -> torch.optim.Optimizer:
        """The base, on this optimizer's groups and state."""
        optimizer = self.__dict__.get("_inner")
        if optimizer is None:
            optimizer = self._inner = self._build_base()
        optimizer.param_groups, optimizer.state = self.param_groups, self.state
        return optimizer

    def _build_base(self) -> torch.optim.Optimizer:
        build: Any = base_named(self, self.base)
        parameters = inspect.signature(build).parameters
        options = {key: value for key, value in self.defaults.items() if key in parameters and key != "params"}
        return build([torch.nn.Parameter(torch.zeros(2, 2, device="cpu"))], **options, **self.apart)

    @torch._disable_dynamo  # the base's own step would be compiled anew for each step's gradients
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; ``closure`` works out the loss anew, as torch's optimizers have it."""
        loss, work = self._start_step(closure)
        before = [(p, p.grad) for params, _ in work for p in params]
        try:
            for params, group in work:
                for p in params:
                    assert p.grad is not None
                    lay(p, p.grad.to(p.dtype))
                    p.grad = self.changed(p, group)
            self.base_step(work)
        finally:
            for p, grad in before:
                lay(p, grad)
        self.finish(work)
        return loss

    def base_step(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Take the base's step."""
        bare_step(self.inner())

    def changed(self, p: Tensor, group: dict) -> Tensor:
        """The gradient that the base gets."""
        raise NotImplementedError

    def finish(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Do what comes after the base's step."""

    def _count(self) -> None:
        """Count a step of the method in each group, and leave no state that is empty.

        torch's checkpoints take a step of their own wherever one is, which must not be counted at each save.
        """
        for group in self.param_groups:
            group[self.key("steps")] += 1
            for p in group["params"]:
                self.state.setdefault(p, {})


def bare_step(optimizer: Any) -> None:
    """Take an optimizer's step without the hooks that torch calls around it."""
    type(optimizer).step.__wrapped__(optimizer)


def lay(p: Tensor, grad: Tensor | None) -> None:
    """Set a gradient, of another type than the parameter's where it has one."""
    if grad is not None and p.grad is not None and grad.dtype != p.grad.dtype:
        p.grad = None
        p.grad_dtype = grad.dtype
    p.grad = grad
