"""What is claimed of a base with heavy tails."""

from functools import partial

from normkit.claims.kinds import Trained, below
from normkit.claims.laws import quantile_error

CLAIMS = [
    Trained(
        "heavy-margin",
        says="Of samples of a law with two degrees of freedom, the 99.9 % quantile's error is half of a normal base's.",
        measure=quantile_error,
        wanted=below(0.5),
        control=partial(quantile_error, heavy=False),
        against="normal samples",
        number="share of the normal base's error",
        null=1.0,
        reach="full",
        bed="laws",
    )
]
