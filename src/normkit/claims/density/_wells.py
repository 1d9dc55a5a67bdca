"""Chains in a double well, and a flow that opens one mode into two."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit.claims.measures import randn
from normkit.density._inputs import DoubleWell

CHAINS, STEPS, LAGS = 400, 100, 60
DOUBLE, SINGLE = (0.0, -4.0, 1.0), (0.0, 0.5, 0.0)


class Opened(nn.Module):
    """x = a z + b tanh(c z) in the first coordinate, all three above 0; the second stays."""

    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64))

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the place that latents stand for, and the log-determinant."""
        (a, b, c), first = F.softplus(self.raw), z[:, :1]
        bent = torch.tanh(c * first)
        slope = a + b * c * (1 - bent.square())
        return torch.cat([a * first + b * bent, z[:, 1:]], 1), slope.log().squeeze(1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the latents, by bisection, and the log-determinant."""
        low, high = torch.full_like(x[:, :1], -20), torch.full_like(x[:, :1], 20)
        for _ in range(50):
            middle = (low + high) / 2
            beyond = self.inverse(torch.cat([middle, x[:, 1:]], 1))[0][:, :1] > x[:, :1]
            low, high = torch.where(beyond, low, middle), torch.where(beyond, middle, high)
        z = torch.cat([low, x[:, 1:]], 1)
        return z, -self.inverse(z)[1]


def fitted(coefficients: Sequence[float]) -> Opened:
    """A flow that was trained on the energy, by the reverse divergence of Kullback and Leibler."""
    flow, energy = Opened(), DoubleWell(*coefficients)
    optimizer = torch.optim.Adam(flow.parameters(), lr=0.03)
    for _ in range(200):
        optimizer.zero_grad()
        x, log_det = flow.inverse(randn(128, 2))
        (energy(x) - log_det).mean().backward()
        optimizer.step()
    return flow.requires_grad_(False)


def correlation_time(move) -> float:
    """The integrated autocorrelation time of the side that a chain is on, from all chains; its mean is 0."""
    x, sides = randn(CHAINS, 2) + torch.tensor([1.4, 0.0]) * (torch.randint(2, (CHAINS, 1)) * 2 - 1), []
    for _ in range(STEPS):
        x = move(x)
        sides.append(x[:, 0].sign())
    kept, total = torch.stack(sides[10:]), 1.0
    for lag in range(1, LAGS):
        agreed = (kept[lag:] * kept[:-lag]).mean().item()
        if agreed < 0.02:
            break
        total += 2 * agreed
    return total
