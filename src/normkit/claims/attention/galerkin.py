"""What is claimed of Galerkin attention's cost."""

from functools import partial

import normkit as nk
from normkit.claims.attention._cost import WIDTH, slope_of_time
from normkit.claims.kinds import Measured, below


def growth(seed, kind=nk.Galerkin):
    """How the time grows with the number of points."""
    return slope_of_time(kind(WIDTH, heads=1))


CLAIMS = [
    Measured(
        "linear",
        says="Its time grows as the number of points.",
        measure=growth,
        wanted=below(1.2),
        control=partial(growth, kind=nk.Softmax),
        against="softmax",
        number="slope",
        draws=3,
        rule="median",
    )
]
