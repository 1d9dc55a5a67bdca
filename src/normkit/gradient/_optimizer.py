"""What all optimizers share: the loop over groups, the checks, and a state that is saved as torch's own are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import Card

Groups = Iterable[Any]  # parameters, or groups of them as torch's optimizers take them


class Optimizer(torch.optim.Optimizer):
    """A real ``torch.optim.Optimizer``; a method says what one group does with its gradients (:meth:`update`).

    Parameters without a gradient are left alone; complex and sparse gradients are refused before anything moves.
    """

    card: ClassVar[Card]

    def __init__(self, params: Groups, **defaults: Any):
        super().__init__(params, {**defaults, "maximize": bool(defaults.get("maximize", False))})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, its own settings checked as the others' are."""
        self.check({**self.defaults, **param_group})
        super().add_param_group(param_group)

    def check(self, group: dict[str, Any]) -> None:
        """Require sound settings of a group; a method adds its own."""
        check.number(self, "lr", float(group["lr"]), 0.0)
        for name in ("weight_decay", "eps"):
            if name in group:
                check.eps(self, group[name], name)
        for beta in group.get("betas", ()):
            if not 0.0 <= check.number(self, "betas", beta) < 1.0:
                raise ValueError(f"{type(self).__name__}: betas must lie in [0, 1), not {tuple(group['betas'])}")

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; ``closure`` works out the loss anew, as torch's optimizers have it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = [([p for p in group["params"] if p.grad is not None], group) for group in self.param_groups]
        for params, _ in work:
            self._refuse(params)
        for params, group in work:
            grads = [-p.grad if group["maximize"] else p.grad for p in params]
            if params:
                self.update(params, grads, [self.state[p] for p in params], group)
        return loss

    def _refuse(self, params: Sequence[Tensor]) -> None:
        for p in params:
            assert p.grad is not None
            if p.grad.is_sparse or p.is_complex():
                what = "sparse gradient" if p.grad.is_sparse else "complex parameter"
                raise TypeError(
                    f"{type(self).__name__}: params has a {what} of shape {tuple(p.shape)}; dense real ones are wanted"
                )


def adam_moments(
    state: dict, parameter: Tensor, grad: Tensor, betas: tuple[float, float]
) -> tuple[Tensor, Tensor, int]:
    """Move both moments of Adam by ``grad``; return them, and the number of the step."""
    if not state:
        state["step"] = torch.tensor(0.0)
        state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    state["step"] += 1
    first, second = state["exp_avg"], state["exp_avg_sq"]
    first.lerp_(grad.to(first.dtype), 1 - betas[0])
    second.mul_(betas[1]).addcmul_(grad.to(second.dtype), grad.to(second.dtype), value=1 - betas[1])
    return first, second, int(state["step"])
