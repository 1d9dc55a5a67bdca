"""What is claimed of gradients that are normalized class by class."""

from functools import partial

from normkit.claims.imbalance import rise
from normkit.claims.kinds import Trained, below

CLAIMS = [
    Trained(
        "rare-class",
        says="At 60 to 1 the rare class' loss never rises by more than 1 % in the first 100 steps.",
        measure=partial(rise, normalized=True),
        wanted=below(0.01),
        control=rise,
        against="gradient descent",
        number="rise of the rare class' loss",
        rule="every",
        reach="full",
        bed="gaussians",
    )
]
