"""What chains tell: whether they agree, and how many independent samples they are worth.

As in Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021): chains are split in halves, and their numbers replaced by
the normal quantiles of their ranks, so that neither a slow drift nor a heavy tail hides.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def rhat(draws: Tensor) -> Tensor:
    """Return R-hat of draws (steps, chains, ...), the greater of that of places and that of distances to the median.

    >>> rhat(torch.randn(500, 4, generator=torch.Generator().manual_seed(0))) < 1.02
    tensor(True)
    """
    halves = _halves(draws)
    off = (halves - _median(halves.flatten(0, 1))).abs()
    return torch.maximum(_rhat(_scores(halves)), _rhat(_scores(off)))


def ess(draws: Tensor) -> Tensor:
    """Return the effective number of draws (steps, chains, ...), of their means: ``bulk`` in arviz."""
    halves = _scores(_halves(draws))
    steps, chains = halves.shape[:2]
    centered = halves - halves.mean(0)
    moved = torch.fft.rfft(centered, n=2 * steps, dim=0)
    covariance = torch.fft.irfft(moved.abs().square(), n=2 * steps, dim=0)[:steps] / steps
    own = covariance[0].mean(0) * steps / (steps - 1)
    whole = own * (steps - 1) / steps + halves.mean(0).var(0)
    rho = 1 - (own - covariance.mean(1)) / whole
    rho[0] = 1
    even, odd = rho[: max(2, (steps - 1) // 2 * 2)].unflatten(0, (-1, 2)).unbind(1)
    pairs = even + odd
    lasting = (pairs > 0).cumprod(0)
    lasting[-1] = 0  # the last pair of lags, of few numbers each, counts by half at most
    falling = (pairs * lasting).cummin(0).values * lasting
    tail = even.gather(0, lasting.sum(0, keepdim=True)).squeeze(0).clamp(min=0)
    time = -1 + 2 * falling.sum(0) + tail
    count = steps * chains
    return count / time.clamp(min=1 / torch.log10(torch.tensor(float(count))))


def _median(rows: Tensor) -> Tensor:
    """The median of each column; torch's own, by quantiles, refuses more than 16 million numbers."""
    ordered, middle = rows.sort(0).values, (len(rows) - 1) / 2
    return (ordered[math.floor(middle)] + ordered[math.ceil(middle)]) / 2


def _halves(draws: Tensor) -> Tensor:
    if draws.dim() < 2 or len(draws) < 4:
        raise ValueError(f"draws must be at least four of each chain, (steps, chains, ...), not {tuple(draws.shape)}")
    half = len(draws) // 2
    return torch.cat([draws[:half], draws[-half:]], 1).double()


def _scores(draws: Tensor) -> Tensor:
    """The normal quantiles of ranks, those of equal numbers in the middle."""
    flat = draws.flatten(0, 1)
    rows = flat.flatten(1) if flat.dim() > 1 else flat.unsqueeze(1)
    ranks = []
    for column in rows.unbind(1):
        _, place, count = column.unique(return_inverse=True, return_counts=True)
        ranks.append((count.cumsum(0).double() - (count - 1) / 2)[place])
    rank = torch.stack(ranks, 1).reshape(draws.shape)
    return torch.special.ndtri((rank - 0.375) / (len(rows) + 0.25))


def _rhat(halves: Tensor) -> Tensor:
    steps = len(halves)
    between, within = steps * halves.mean(0).var(0), halves.var(0).mean(0)
    return ((between / within + steps - 1) / steps).sqrt()
