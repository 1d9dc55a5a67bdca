"""Optimizers that look at another's step before it counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normkit.gradient._based import Based, bare_step, base_named
from normkit.gradient._optimizer import LIKE_PARAMETERS, Groups


class Looking(Based):
    """An optimizer around another one, whose step it changes entry by entry; decay is no part of the step.

    A method says what becomes of a parameter that the base has moved (:meth:`moved_on`).
    """

    def __init__(self, params: Groups, base: str, own: dict[str, Any], options: dict[str, Any]):
        super().__init__(params, base, own, options)
        self.decays_apart = decays_apart(base_named(self, base), options)

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), "decays_apart": self.decays_apart}

    def changed(self, p: Tensor, group: dict) -> Tensor:
        """The gradient as it is."""
        assert p.grad is not None
        return p.grad

    def base_step(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Take the base's step without its decay, and change it; what has no gradient stays."""
        before = {p: p.detach().clone() for group in self.param_groups for p in group["params"]}
        decays = [group.get("weight_decay", 0.0) for group in self.param_groups]
        try:
            for group in self.param_groups if self.decays_apart else ():
                group["weight_decay"] = 0.0
            super().base_step(work)
        finally:
            for group, decay in zip(self.param_groups, decays, strict=True):
                group["weight_decay"] = decay
        stepped = {p for params, _ in work for p in params}
        for group in self.param_groups:
            for p in group["params"]:
                if p in stepped:
                    self.moved_on(p, before[p], group)
                else:
                    p.copy_(before[p])

    def moved_on(self, p: Tensor, before: Tensor, group: dict) -> None:
        """Change what the base has made of a parameter."""
        raise NotImplementedError

    def decay(self, group: dict) -> float:
        """The share of a weight that decays in a step, apart from the base's own step."""
        return group["lr"] * group.get("weight_decay", 0.0) if self.decays_apart else 0.0


def decays_apart(build: Any, options: dict[str, Any]) -> bool:
    """Whether an optimizer's decay takes lr weight_decay off a weight, and its moments do not see it; tried on one.

    >>> decays_apart(torch.optim.AdamW, {}), decays_apart(torch.optim.Adam, {})
    (True, False)
    """
    p = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    try:
        made = build([p], **{**options, "lr": 0.5, "weight_decay": 0.5})
    except TypeError:  # takes no decay
        return False
    for _ in range(2):
        p.grad = torch.zeros_like(p)
        bare_step(made)
    moments = [value for name, value in made.state[p].items() if name in LIKE_PARAMETERS and value is not None]
    shrunk = any(torch.allclose(p, torch.full_like(p, 0.75**steps)) for steps in (1, 2))  # SOAP's first step is none
    return shrunk and not any(m.any() for m in moments)
