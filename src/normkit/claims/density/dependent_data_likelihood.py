"""What is claimed of the likelihood of related samples."""

from functools import partial

from normkit.claims.kinds import Trained, above, below
from normkit.claims.laws import gained

CLAIMS = [
    Trained(
        "family",
        says="Where half of the samples are a family of correlation 0.9, it brings 0.01 nats on others, or more.",
        measure=gained,
        wanted=above(0.01),
        control=partial(gained, correlation=0.0),
        against="samples that are independent",
        number="nats",
        reach="full",
        bed="laws",
    ),
    Trained(
        "independent",
        says="Where they are independent it changes no more than 0.05 nats.",
        measure=partial(gained, correlation=0.0),
        wanted=below(0.05),
        control=gained,
        against="a family of correlation 0.9",
        number="nats",
        rule="within",
        reach="full",
        bed="laws",
    ),
]
