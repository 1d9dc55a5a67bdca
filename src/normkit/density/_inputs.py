"""What the methods of this room share: accurate inputs, Gaussian densities, energies, forces and layers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from normkit import check

Energy = Callable[[Tensor], Tensor]


def gaussian(x: Tensor, mean: Tensor | float, scale: Tensor | float) -> Tensor:
    """Log density of an isotropic Gaussian, summed over the last axis."""
    scale = torch.as_tensor(scale, dtype=x.dtype, device=x.device)
    return -((x - mean).square().sum(-1) / scale.square() / 2 + x.shape[-1] * (scale.log() + math.log(2 * math.pi) / 2))


@dataclass(frozen=True)
class DoubleWell:
    """The energy a d + b d^2 + c d^4 + |rest|^2 / 2, d the first coordinate."""

    a: float
    b: float
    c: float

    def __call__(self, x: Tensor) -> Tensor:
        """Return the energy of each sample."""
        d = x[..., 0]
        return self.a * d + self.b * d.square() + self.c * d.square().square() + x[..., 1:].square().sum(-1) / 2

    def force(self, x: Tensor) -> Tensor:
        """Return minus the gradient of the energy."""
        d = x[..., :1]
        return -torch.cat([self.a + 2 * self.b * d + 4 * self.c * d * d.square(), x[..., 1:]], -1)


def energy_of(owner: object, energy: str | Energy, coefficients: Sequence[float] | None) -> Energy:
    """Return the energy that a name or a callable of the user's stands for."""
    if callable(energy):
        if coefficients is not None:
            raise ValueError(f"{check.whose(owner)}: coefficients are of energy='double-well', not of a callable's")
        return energy
    check.choice(owner, "energy", energy, ("double-well",))
    return DoubleWell(*((0.0, -4.0, 1.0) if coefficients is None else _three(owner, coefficients)))


def _three(owner: object, coefficients: Sequence[float]) -> list[float]:
    if not isinstance(coefficients, list | tuple) or len(coefficients) != 3:
        raise ValueError(f"{check.whose(owner)}: coefficients must be three numbers [a, b, c], not {coefficients!r}")
    return [check.number(owner, "coefficients", value) for value in coefficients]


def force(energy: Energy, x: Tensor) -> Tensor:
    """The force -d energy / dx of each sample, itself differentiable."""
    if isinstance(energy, DoubleWell):
        return energy.force(x)
    return -torch.func.grad(lambda x: tied(energy(x), "energy").sum())(x)


def tied(value: Tensor, name: str) -> Tensor:
    """Require that what a function returned of a point follows it by a gradient: a force of 0 would not be one."""
    if not value.requires_grad:
        raise ValueError(
            f"{name} must have a gradient by x, but what it returns requires none: it is detached, computed under "
            "no_grad, or does not depend on x"
        )
    return value


def bind(module: nn.Module, state: Mapping[str, Tensor]) -> Callable[..., Any]:
    """Return a module's call with these parameters and buffers, which ``torch.func.functional_call`` may have set."""
    own = itertools.chain(module.named_parameters(), module.named_buffers())
    if all(state.get(name) is value for name, value in own):
        return module
    return lambda *inputs: functional_call(module, dict(state), inputs)


def linear(x: Tensor, layer: nn.Linear) -> Tensor:
    """A linear layer in the type of ``x``."""
    return F.linear(x, layer.weight.to(x.dtype), None if layer.bias is None else layer.bias.to(x.dtype))
