"""What merging statistics over processes is said to be: exact."""

import torch

from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn
from normkit.statistics import merge, moments

SIZES = (7, 2, 31, 1)


def parts():
    """A batch, and moments of its parts, as processes with unequal batches have them."""
    x = 3 * randn(sum(SIZES), 5) + torch.linspace(-4, 4, sum(SIZES), dtype=torch.float64)[:, None]
    own = [moments(part, (0,)) for part in x.split(SIZES)]
    return x, torch.stack([part.mean for part in own]), torch.stack([part.var for part in own])


def merged_error(seed):
    """How far merged mean and variance are from those of the whole."""
    x, mean, var = parts()
    statistics = merge(mean, var, torch.tensor(SIZES))
    return max(gap(statistics[0], x.mean(0)), gap(statistics[1], x.var(0, correction=0)))


def averaged(seed):
    """The same with plain averages of means and variances."""
    x, mean, var = parts()
    return max(gap(mean.mean(0), x.mean(0)), gap(var.mean(0), x.var(0, correction=0)))


CLAIMS = [
    Identity(
        "merge",
        says="Mean and variance that are merged from unequal parts are those of the whole.",
        measure=merged_error,
        bound=1e-12,
        breaks=averaged,
        against="plain averages of the parts' means and variances",
        source="Updating Formulae and a Pairwise Algorithm for Computing Sample Variances (Chan et al., 1979)",
    )
]
