"""Couplings and autoregressive maps, whose networks give the parameters of a curve for each number."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from normkit import check
from normkit.density._parts import ACTIVATIONS, AffineCurve, SplineCurve
from normkit.density._recipe import Asked, refuse_others


def curved(kind: type, curve: Callable[..., nn.Module], least: int = 1) -> Callable[..., list[nn.Module]]:
    """Build maps of a kind, each with a curve."""

    def build(asked: Asked, activation: str = "silu", **options: Any) -> list[nn.Module]:
        check.size("flow", "event", asked.dim, least=least)
        check.choice("flow", "activation", activation, tuple(ACTIVATIONS))
        refuse_others(options, ["activation", *inspect.signature(curve).parameters])
        sizes = {"context": asked.numbers, "hidden": asked.hidden, "activation": activation}
        return [kind(asked.dim, curve(**options), flipped=bool(n % 2), **sizes) for n in range(asked.depth)]

    return build


def affine() -> nn.Module:
    """A shift and a scale."""
    return AffineCurve()


def spline(bins: int = 8, bound: float = 5.0) -> nn.Module:
    """A rational-quadratic spline."""
    return SplineCurve(bins, bound)
