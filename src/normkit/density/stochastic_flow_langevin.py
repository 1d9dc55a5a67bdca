"""Langevin steps as a layer of a flow, with the log ratio of path probabilities in the place of the determinant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.density._inputs import Energy, energy_of, force
from normkit.statistics import reals

NAME = "stochastic-flow-langevin"


class Overdamped(NamedTuple):
    """States after the steps, and the log ratio of backward to forward path probability."""

    y: Tensor
    log_det: Tensor


class Underdamped(NamedTuple):
    """States and velocities after the steps, and the log ratio of backward to forward path probability."""

    y: Tensor
    v: Tensor
    log_det: Tensor


class _Friction(NamedTuple):
    """What the steps with velocities are made of."""

    h: float
    mass: float
    gamma: float
    temperature: float


@method(
    NAME,
    paper="Stochastic Normalizing Flows (Wu et al., 2020), arXiv 2002.06707",
    shape="N C",
    inputs={"v": "N C", "noise": "steps 2 N C"},
    example={"energy": "double-well", "kind": "underdamped", "steps": 2},
)
def stochastic_flow_langevin(
    x: Tensor,
    v: Tensor,
    noise: Tensor | None = None,
    *,
    energy: str | Energy,
    kind: str = "overdamped",
    steps: int = 1,
    step_size: float = 0.01,
    mass: float = 1.0,
    gamma: float = 1.0,
    temperature: float = 1.0,
    coefficients: Sequence[float] | None = None,
) -> Overdamped | Underdamped:
    """Move samples along the force with noise, and return what the moves do to their log density.

    For flows to an energy of several modes: between their layers noise overcomes what a smooth map cannot, such as
    splitting a mode in two. The samples have exact weights, but no density of their own. Without a gradient of the
    energy take ``stochastic-flow-metropolis``.

    With F = -d energy / dx, h the step size and w the noise, a step is

        overdamped   y = x + h F(x) + sqrt(2h) w,    w~ = (x - y - h F(y)) / sqrt(2h)
        underdamped  v' = v + h/2m (F(x) - g v + A w1),    y = x + h v'
                     v'' = (v' + h/2m (F(y) + A w2)) / (1 + gh/2m)
                     w~1 = w2 - B v'',    w~2 = w1 - B v,    g = gamma m,  A^2 = 4 g T / h,  B^2 = g h / T

    and adds (|w|^2 - |w~|^2) / 2 to ``log_det``, which is summed with the flow's own log-determinants.

    Args:
        x: the samples, (N, D).
        v, noise: overdamped takes (x, noise), with normal numbers (steps, N, D); underdamped takes (x, v, noise), with
            velocities (N, D) and normal numbers (steps, 2, N, D).
        energy: a callable (N, D) -> (N,), or ``"double-well"``: a d + b d^2 + c d^4 + |rest|^2 / 2 with d the first
            coordinate.
        kind: ``"overdamped"`` or ``"underdamped"``.
        steps: how many.
        step_size: h.
        mass, gamma, temperature: m, friction and T, of underdamped steps alone.
        coefficients: [a, b, c] of the double well; None: [0, -4, 1].

    Returns ``y``, with ``v`` if underdamped, and ``log_det`` (N,). The way back is another call with fresh noise.

    Stochastic Normalizing Flows (Wu et al., 2020), arXiv 2002.06707.
    """
    check.choice(NAME, "kind", kind, ("overdamped", "underdamped"))
    steps, h = check.size(NAME, "steps", steps), check.number(NAME, "step_size", step_size, 0.0, open_low=True)
    for name, value in (("mass", mass), ("gamma", gamma), ("temperature", temperature)):
        check.number(NAME, name, value, 0.0, open_low=True)
    plain, state = energy_of(NAME, energy, coefficients), reals(NAME, "x", x, (None, None))
    if kind == "overdamped":
        if noise is not None:
            raise ValueError(f"{NAME}: with kind='overdamped' the call takes x and noise, and no v")
        return Overdamped(*_slide(plain, state, reals(NAME, "noise", v, (steps, *x.shape), x), h, x.dtype))
    speed = reals(NAME, "v", v, x.shape, x)
    if noise is None:
        raise ValueError(f"{NAME}: with kind='underdamped' the call takes x, v and noise")
    draws = reals(NAME, "noise", noise, (steps, 2, *x.shape), x)
    return Underdamped(*_swing(plain, state, speed, draws, _Friction(h, mass, gamma * mass, temperature), x.dtype))


def _slide(energy: Energy, x: Tensor, noise: Tensor, h: float, dtype: torch.dtype) -> list[Tensor]:
    log_det = x.new_zeros(len(x))
    for w in noise:
        y = x + h * force(energy, x) + (2 * h) ** 0.5 * w
        back = (x - y - h * force(energy, y)) / (2 * h) ** 0.5
        log_det = log_det + (w.square() - back.square()).sum(1) / 2
        x = y
    return [value.to(dtype) for value in (x, log_det)]


def _swing(energy: Energy, x: Tensor, v: Tensor, noise: Tensor, by: _Friction, dtype: torch.dtype) -> list[Tensor]:
    kick, half = (4 * by.gamma * by.temperature / by.h) ** 0.5, by.h / (2 * by.mass)
    drag = (by.gamma * by.h / by.temperature) ** 0.5
    log_det = x.new_zeros(len(x))
    for first, second in noise:
        middle = v + half * (force(energy, x) - by.gamma * v + kick * first)
        x = x + by.h * middle
        after = (middle + half * (force(energy, x) + kick * second)) / (1 + half * by.gamma)
        back = second - drag * after, first - drag * v
        log_det = log_det + (first.square() + second.square() - back[0].square() - back[1].square()).sum(1) / 2
        v = after
    return [value.to(dtype) for value in (x, v, log_det)]
