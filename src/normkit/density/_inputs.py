"""What the methods of this room share: inputs in the accurate type, Gaussian densities, energies and their forces."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.statistics import accurate

Energy = Callable[[Tensor], Tensor]


def reals(owner: object, name: str, x: Tensor, wanted: Sequence[int | None], like: Tensor | None = None) -> Tensor:
    """Require real numbers of ``wanted`` shape, and return them in the accurate type."""
    check.floating(owner, x, name)
    check.values(owner, name, x, wanted, x if like is None else like)
    return accurate(x)


def gaussian(x: Tensor, mean: Tensor | float, scale: Tensor | float) -> Tensor:
    """Log density of an isotropic Gaussian, summed over the last axis."""
    scale = torch.as_tensor(scale, dtype=x.dtype, device=x.device)
    return -((x - mean).square().sum(-1) / scale.square() / 2 + x.shape[-1] * (scale.log() + math.log(2 * math.pi) / 2))


def energy_of(owner: object, energy: str | Energy, coefficients: Sequence[float] | None) -> Energy:
    """Return the energy that a name or a callable of the user's stands for."""
    if callable(energy):
        if coefficients is not None:
            raise ValueError(f"{check.whose(owner)}: coefficients are of energy='double-well', not of a callable's")
        return energy
    check.choice(owner, "energy", energy, ("double-well",))
    a, b, c = (0.0, -4.0, 1.0) if coefficients is None else _three(owner, coefficients)

    def double_well(x: Tensor) -> Tensor:
        d = x[..., 0]
        return a * d + b * d.square() + c * d.square().square() + x[..., 1:].square().sum(-1) / 2

    return double_well


def _three(owner: object, coefficients: Sequence[float]) -> list[float]:
    if not isinstance(coefficients, list | tuple) or len(coefficients) != 3:
        raise ValueError(f"{check.whose(owner)}: coefficients must be three numbers [a, b, c], not {coefficients!r}")
    return [check.number(owner, "coefficients", value) for value in coefficients]


def force(energy: Energy, x: Tensor) -> Tensor:
    """The force -d energy / dx of each sample, itself differentiable."""
    return -torch.func.grad(lambda x: energy(x).sum())(x)
