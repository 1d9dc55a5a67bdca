"""What is claimed of a walk among the latents of a flow."""

from functools import partial

from normkit.claims.density._modes import jump, share_error, walk
from normkit.claims.kinds import Measured, below

DIM = 32


def moved(seed, sample=walk):
    """How far a mode's share is from what it was at the start."""
    return share_error(sample, (2, 8), 0.3, 0.3)


def variance_error(seed, sample=walk):
    """How far the mean variance of the other coordinates is from 1."""
    return (sample(DIM, 0.5)[:, 1:].var(0).mean() - 1).abs()


CLAIMS = [
    Measured(
        "no-mixing",
        says="A walk among latents does not mix between modes: a mode keeps the share that it began with.",
        measure=moved,
        wanted=below(0.05),
        control=partial(moved, sample=jump),
        against="jumps to the flow's samples",
        number="change of a mode's share",
        draws=2,
    ),
    Measured(
        "poor-flow",
        says="In 32 dimensions, of a flow 30 % too wide in each, its variances are right within 10 %.",
        measure=variance_error,
        wanted=below(0.1),
        control=partial(variance_error, sample=jump),
        against="jumps to the flow's samples",
        number="error of the variance",
        draws=2,
    ),
]
