"""A diffusion that samples: paths from 0 along a drift, and how likely each is beside a bridge of Brown."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from normkit import catalog, check

Drift = Callable[[Tensor, Tensor], Tensor]


class Diffusion(nn.Module):
    """Paths from 0 to time 1, for the sampler ``dgfs`` of :func:`walk`.

    Args:
        dim: of a sample, D.
        drift: a function (t, x) of times (N,) and states (N, D), which returns (N, D), such as a network trained by
            ``subtb-loss``; None: none, so that samples are normal with a deviation of ``sigma``.
        sigma: the scale of the noise.
        steps: of a path.

    >>> diffusion = Diffusion(2, lambda t, x: 1 - x)
    >>> [value.shape for value in diffusion.draw(5)]
    [torch.Size([5, 2]), torch.Size([5])]
    """

    def __init__(self, dim: int, drift: Drift | None = None, *, sigma: float = 1.0, steps: int = 20):
        super().__init__()
        self.dim, self.steps = check.size("Diffusion", "dim", dim), check.size("Diffusion", "steps", steps)
        self.sigma = check.number("Diffusion", "sigma", sigma, 0.0, open_low=True)
        if drift is not None and not callable(drift):
            raise TypeError(f"Diffusion: drift must be a function (t, x), not {type(drift).__name__}")
        self.drift = drift

    def draw(self, n: int, like: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the ends of ``n`` paths (n, D), and the log density of each path over that of a bridge to its end."""
        n = check.size("Diffusion", "n", n, least=0)
        like = torch.empty(0) if like is None else like
        x, ratio = like.new_zeros(n, self.dim), like.new_zeros(n)
        step = catalog.card("dgfs-step").entry
        for place in range(self.steps):
            drift = self._drift(place, x)
            following = step(x, drift, torch.randn_like(x), sigma=self.sigma, dt=1 / self.steps).next
            ratio = ratio + self._ratio(place, x, following, drift)
            x = following
        return x, ratio

    def bridge(self, x: Tensor) -> Tensor:
        """Return the same log ratio of a bridge from 0 to each of the samples (N, D)."""
        ratio = x.new_zeros(len(x))
        for place in reversed(range(self.steps)):
            share, dt = place / (place + 1), 1 / self.steps
            before = self.sigma * (dt * share) ** 0.5 * torch.randn_like(x) + share * x
            ratio = ratio + self._ratio(place, before, x, self._drift(place, before))
            x = before
        return ratio

    def _time(self, place: int, x: Tensor) -> Tensor:
        return x.new_full((len(x),), place / self.steps)

    def _drift(self, place: int, x: Tensor) -> Tensor:
        return torch.zeros_like(x) if self.drift is None else self.drift(self._time(place, x), x)

    def _ratio(self, place: int, x: Tensor, following: Tensor, drift: Tensor) -> Tensor:
        transition = catalog.card("dgfs-transition").entry
        densities = transition(x, following, drift, self._time(place, x), sigma=self.sigma, dt=1 / self.steps)
        return densities.log_pf - (densities.log_pb if place else 0.0)
