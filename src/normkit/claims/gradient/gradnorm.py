"""What is claimed of weights that bring tasks to one pace."""

from functools import partial

from normkit.claims.kinds import Trained, below
from normkit.claims.scales import share

CLAIMS = [
    Trained(
        "two-scales",
        says="Of losses that differ 100 times, 0.8 of what equal weights leave is left, or less.",
        measure=share,
        wanted=below(0.8),
        control=partial(share, spread=1.0),
        against="tasks of one scale",
        number="share of the relative losses",
        null=1.0,
        bed="two-scales",
    )
]
