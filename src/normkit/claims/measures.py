"""Numbers that many claims measure: largest differences, relative errors, cosines, slopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Map = Callable[[Tensor], Tensor]


def randn(*shape: int) -> Tensor:
    """Normal numbers in float64; the engine has seeded them."""
    return torch.randn(*shape, dtype=torch.float64)


def gap(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors."""
    return (one - other).abs().max().item()


def relative(one: Tensor, other: Tensor) -> float:
    """The largest difference, as a share of the largest entry of ``other``."""
    return gap(one, other) / other.abs().max().item()


def cosine(one: Tensor, other: Tensor) -> float:
    """The largest absolute cosine between vectors along the last axis."""
    return torch.cosine_similarity(one, other, -1, eps=0.0).abs().max().item()


def change(function: Map, x: Tensor, other: Tensor) -> float:
    """The largest difference of a function's values at two places."""
    return gap(function(x), function(other))


def gradient(function: Map, x: Tensor) -> Tensor:
    """The gradient at ``x`` of a sum of the function's values with random weights."""
    x = x.detach().requires_grad_()
    y = function(x)
    return torch.autograd.grad((y * torch.randn_like(y)).sum(), x)[0]


def randomized(module: nn.Module, spread: float = 0.5) -> Any:
    """A module in float64, each parameter moved by normal numbers."""
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(spread * torch.randn_like(parameter))
    return module


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of the straight line that fits best."""
    a, b = (torch.as_tensor(v, dtype=torch.float64) for v in (x, y))
    a = a - a.mean()
    return ((a * (b - b.mean())).sum() / a.square().sum()).item()
