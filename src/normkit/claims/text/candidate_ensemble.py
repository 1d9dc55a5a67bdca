"""What xMEN claims of several sources of candidates."""

from functools import partial

from normkit.claims.kinds import Measured, above
from normkit.claims.text._candidates import recalls


def gain(seed, copies=False):
    """The gain of the recall among 64 candidates over that of the better source."""
    scores = recalls(seed, copies)
    return scores["both"] - max(scores["triples"], scores["others"])


CLAIMS = [
    Measured(
        "recall",
        says="The 64 with the best scores of two sources, compared as they are, have 1 point more recall than one's.",
        measure=gain,
        wanted=above(0.01),
        control=partial(gain, copies=True),
        against="two copies of one source",
        number="gain of the recall",
        draws=8,
        rule="mean",
        null=0.0,
        reach="proxy",
    )
]
