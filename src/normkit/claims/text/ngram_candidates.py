"""What xMEN claims of n-grams beside another source of candidates."""

from functools import partial

from normkit.claims.kinds import Measured, above
from normkit.claims.text._candidates import recalls


def gain(seed, copies=False):
    """The gain of the recall among 64 candidates over that of n-grams alone."""
    scores = recalls(seed, copies)
    return scores["both"] - scores["triples"]


CLAIMS = [
    Measured(
        "recall",
        says="Beside a second source its recall among 64 candidates is 1 point more than alone, or more.",
        measure=gain,
        wanted=above(0.01),
        control=partial(gain, copies=True),
        against="n-grams twice",
        number="gain of the recall",
        draws=8,
        rule="mean",
        null=0.0,
        reach="proxy",
    )
]
