"""What is claimed of features for an exponential kernel."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn, slope

COUNTS = (8, 32, 128, 512)


def products(projection, x, w, corrected=True):
    """Each projection's share of the estimate of exp(x . w)."""
    ones = torch.ones(len(projection), dtype=torch.float64)
    first, second = (nk.snnk_exponential(v, projection, ones, ones) for v in (x, w))
    terms = first * second * len(projection)
    return terms if corrected else terms * ((x.square().sum() + w.square().sum()) / 2).exp()


def vectors():
    """Two short vectors."""
    return 0.5 * torch.nn.functional.normalize(randn(2, 8))


def bias(seed, corrected=True):
    """The bias of the estimate in standard errors, of 20,000 projections."""
    x, w = vectors()
    terms = products(randn(20_000, 8), x, w, corrected)
    return ((terms.mean() - (x @ w).exp()) / (terms.std() / len(terms) ** 0.5)).abs()


def slope_error(seed, fresh=True):
    """How far the slope of the error against the number of projections, both as logarithms, is from -1/2."""
    x, w = vectors()
    errors = []
    for count in COUNTS:
        projections = randn(2000, count if fresh else 1, 8).expand(-1, count, -1)
        terms = products(projections.flatten(0, 1), x, w).unflatten(0, (2000, count))
        errors.append((terms.mean(1) - (x @ w).exp()).square().mean().sqrt())
    return abs(slope(torch.tensor(COUNTS).double().log(), torch.stack(errors).log()) + 0.5)


CLAIMS = [
    Measured(
        "unbiased",
        says="The estimate of the kernel is unbiased.",
        measure=bias,
        wanted=below(3.0),
        control=partial(bias, corrected=False),
        against="features without the factor of their lengths",
        number="bias in standard errors",
    ),
    Measured(
        "rate",
        says="Its error falls as one over the root of the number of projections.",
        measure=slope_error,
        wanted=below(0.05),
        control=partial(slope_error, fresh=False),
        against="one projection, repeated",
        number="error of the slope",
        draws=3,
    ),
]
