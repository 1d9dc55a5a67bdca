"""Couplings and autoregressive maps, whose networks give the parameters of a curve for each number."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from normkit import check
from normkit.density._parts import ACTIVATIONS, AffineCurve, SplineCurve
from normkit.density._recipe import FlowSizes, refuse_others


def curved(kind: type, curve: Callable[..., nn.Module], least: int = 1) -> Callable[..., list[nn.Module]]:
    """Build maps of a kind, each with a curve."""

    def build(sizes: FlowSizes, activation: str = "silu", **options: Any) -> list[nn.Module]:
        check.size("flow", "event", sizes.dim, least=least)
        check.choice("flow", "activation", activation, tuple(ACTIVATIONS))
        refuse_others(options, ["activation", *inspect.signature(curve).parameters])
        networks = {"context": sizes.numbers, "hidden": sizes.hidden, "activation": activation}
        return [kind(sizes.dim, curve(**options), n, sizes.depth, **networks) for n in range(sizes.depth)]

    return build


def affine() -> nn.Module:
    """A shift and a scale."""
    return AffineCurve()


def spline(bins: int = 8, bound: float = 5.0) -> nn.Module:
    """A rational-quadratic spline."""
    return SplineCurve(bins, bound)
