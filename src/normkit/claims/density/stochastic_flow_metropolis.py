"""What stochastic flows claim of modes that a flow cannot part."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn
from normkit.density._inputs import DoubleWell, gaussian

COEFFICIENTS, EDGES = [0.3, -4.0, 1.0], torch.tensor([-0.5, 0.5], dtype=torch.float64)
SAMPLES, STEPS, GROUPS = 4000, 150, 40
GRID = torch.linspace(-4, 4, 8001, dtype=torch.float64)
WEIGHTS = torch.softmax(-DoubleWell(*COEFFICIENTS)(torch.stack([GRID, 0 * GRID], 1)), 0)
SPREAD = (WEIGHTS * GRID.square()).sum().sqrt()


def shares(x, weights):
    """The weights left of the bridge, on it and right of it."""
    return torch.zeros(3, dtype=torch.float64).index_add(0, torch.bucketize(x.contiguous(), EDGES), weights)


def samples(stochastic):
    """Samples of an affine flow about the bridge, with their mean square right, with the logarithms of weights."""
    x = randn(SAMPLES, 2) * torch.stack([SPREAD, torch.ones_like(SPREAD)])
    log_proposal = gaussian(x[:, :1], 0.0, SPREAD) + gaussian(x[:, 1:], 0.0, 1.0)
    log_det = torch.zeros(SAMPLES, dtype=torch.float64)
    if stochastic:
        x, log_det = nk.stochastic_flow_metropolis(
            x,
            randn(STEPS, SAMPLES, 2),
            torch.rand(STEPS, SAMPLES, dtype=torch.float64),
            energy="double-well",
            steps=STEPS,
            step_size=0.8,
            coefficients=COEFFICIENTS,
        )
    return x, -DoubleWell(*COEFFICIENTS)(x) - log_proposal + log_det


def share_error(seed, stochastic=True):
    """The largest error of the shares of both wells and of the bridge, without weights."""
    x, _ = samples(stochastic)
    return (shares(x[:, 0], torch.full((SAMPLES,), 1 / SAMPLES).double()) - shares(GRID, WEIGHTS)).abs().max()


def free_energy_error(seed, weighted=True):
    """The error of the difference of free energies of both wells, in standard errors of a jackknife."""
    x, log_weight = samples(weighted)
    weights = torch.softmax(log_weight, 0) if weighted else torch.full((SAMPLES,), 1 / SAMPLES).double()
    parts = torch.stack([shares(*own) for own in zip(x[:, 0].chunk(GROUPS), weights.chunk(GROUPS), strict=True)])
    left = parts.sum(0) - parts  # without one group
    estimates, truth = (sides[..., 2].log() - sides[..., 0].log() for sides in (left, shares(GRID, WEIGHTS)))
    error = estimates.std(correction=0) * (GROUPS - 1) ** 0.5
    return (estimates.mean() - truth).abs() / error


CLAIMS = [
    Measured(
        "shares",
        says="Behind an affine flow, random moves fill both wells and empty the bridge, within 5 points.",
        measure=share_error,
        wanted=below(0.05),
        control=partial(share_error, stochastic=False),
        against="the flow alone",
        number="largest error of a share",
        draws=5,
    ),
    Measured(
        "free-energy",
        says="Reweighted, the difference of free energies of both wells is exact.",
        measure=free_energy_error,
        wanted=below(3.0),
        control=partial(free_energy_error, weighted=False),
        against="the flow alone, without weights",
        number="error in standard errors",
        draws=5,
    ),
]
