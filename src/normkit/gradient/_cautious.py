"""Optimizers that look at another's step before it counts."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from normkit.gradient._based import Based, bare_step
from normkit.gradient._optimizer import LIKE_PARAMETERS


class StepMask(Based):
    """An optimizer around another one, whose step it changes entry by entry; decay is no part of the step.

    A method says what becomes of a parameter that the base has moved (:meth:`mask`).
    """

    @functools.cached_property
    def decoupled(self) -> bool:
        """Whether the base's decay is no part of its gradient."""
        return has_decoupled_decay(self._build_base())

    def changed(self, p: Tensor, group: dict) -> Tensor:
        """The gradient as it is."""
        assert p.grad is not None
        return p.grad

    def base_step(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Take the base's step without its decay, and change it; what has no gradient stays."""
        before = {p: p.detach().clone() for group in self.param_groups for p in group["params"]}
        groups = self.param_groups if self.decoupled else []
        decays = [group["weight_decay"] for group in groups]
        try:
            for group in groups:
                group["weight_decay"] = 0.0
            super().base_step(work)
        finally:
            for group, decay in zip(groups, decays, strict=True):
                group["weight_decay"] = decay
        stepped = {p for params, _ in work for p in params}
        for group in self.param_groups:
            for p in group["params"]:
                if p in stepped:
                    self.mask(p, before[p], group)
                else:
                    p.copy_(before[p])

    def mask(self, p: Tensor, before: Tensor, group: dict) -> None:
        """Change what the base has made of a parameter."""
        raise NotImplementedError

    def decay(self, group: dict) -> float:
        """The share of a weight that decays in a step, apart from the base's own step."""
        return group["lr"] * group.get("weight_decay", 0.0) if self.decoupled else 0.0


def has_decoupled_decay(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the decay of an optimizer takes lr weight_decay off a weight, and its moments do not see it; it is tried.

    >>> p = [torch.zeros(2)]
    >>> has_decoupled_decay(torch.optim.AdamW(p)), has_decoupled_decay(torch.optim.Adam(p))
    (True, False)
    """
    (group,) = optimizer.param_groups
    if "weight_decay" not in group:
        return False
    group |= {"lr": 0.5, "weight_decay": 0.5}
    (p,) = group["params"]
    with torch.no_grad():
        p.fill_(1.0)
    for _ in range(2):
        p.grad = torch.zeros_like(p)
        bare_step(optimizer)
    state = optimizer.state[p]
    moments = [value for name, value in state.items() if name in LIKE_PARAMETERS and value is not None]
    shrunk = any(torch.allclose(p, torch.full_like(p, 0.75**steps)) for steps in (1, 2))  # SOAP's first step is none
    return shrunk and not any(m.any() for m in moments)
