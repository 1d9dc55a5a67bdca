"""One step of a sampler, in one form for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from normkit.density._inputs import tied

LogProb = Callable[[Tensor], Tensor]


class State(NamedTuple):
    """Where chains are, (chains, ...), and which of them moved in this step, from 0 to 1."""

    x: Tensor
    accepted: Tensor


class Sampler(NamedTuple):
    """One step of a sampler: states, log density, step size and flow in, the new state and what was accepted out.

    ``proposes``: what proposes samples, a "Flow", a "Diffusion" or nothing. ``scaled``: whether there is a step size.
    ``share``: of accepted steps, to which the warm-up leads the step size.
    """

    step: Callable[..., State]
    proposes: str = ""
    scaled: bool = False
    share: float | None = None

    @property
    def fitted(self) -> bool:
        """Whether something must be fitted before it."""
        return bool(self.proposes)


def uniform(x: Tensor) -> Tensor:
    """Draw a number for each chain."""
    return torch.rand(len(x), dtype=x.dtype, device=x.device)


def energy(log_prob: LogProb) -> LogProb:
    """The energy of a log density."""

    def minus(x: Tensor) -> Tensor:
        value = log_prob(x)
        return -tied(value, "walk: log_prob") if x.requires_grad and torch.is_grad_enabled() else -value

    return minus
