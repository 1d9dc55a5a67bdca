"""What is claimed of hubs."""

import itertools
from functools import partial

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn

DIMS = (2, 5, 20, 50, 200)


def least_growth(seed, dims=DIMS):
    """The least growth of the skewness of counts from one number of dimensions to the next."""
    skewness = []
    for dim in dims:
        queries, items = randn(1000, dim), randn(1000, dim)
        distance = (queries.square().sum(1)[:, None] + items.square().sum(1) - 2 * queries @ items.mT).neg()
        skewness.append(float(nk.hubness(distance).full_skewness))
    return min(after - before for before, after in itertools.pairwise(skewness))


CLAIMS = [
    Measured(
        "dimension",
        says="Hubness grows with the number of dimensions, at each step from 2 to 200.",
        measure=least_growth,
        wanted=above(0.0),
        control=partial(least_growth, dims=DIMS[::-1]),
        against="fewer dimensions each time",
        number="least growth of the skewness",
        draws=24,
        rule="mean",
    ),
    Measured(
        "dimension-from-5",
        says="The same from 5 to 200.",
        measure=partial(least_growth, dims=DIMS[1:]),
        wanted=above(0.0),
        control=partial(least_growth, dims=DIMS[:0:-1]),
        against="fewer dimensions each time",
        number="least growth of the skewness",
        draws=24,
        rule="mean",
    ),
]
