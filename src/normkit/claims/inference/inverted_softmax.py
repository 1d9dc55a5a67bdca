"""What is claimed of the inverted softmax."""

from functools import partial

import normkit as nk
from normkit.claims.inference._retrieval import recall, scores, skewness
from normkit.claims.kinds import Measured, above, below


def gain(seed, dim=50):
    """The points of recall that a bank of 1,000 other queries brings."""
    own = scores(dim=dim)
    return recall(nk.inverted_softmax(own.queries, own.bank)) - recall(own.queries)


def growth(seed, dim=50):
    """By how much the skewness grows."""
    own = scores(dim=dim)
    return skewness(nk.inverted_softmax(own.queries, own.bank)) - skewness(own.queries)


CLAIMS = [
    Measured(
        "recall",
        says="With 1,000 noisy pairs in 50 dimensions the best item is the right one a point more often.",
        measure=gain,
        wanted=above(1.0),
        control=partial(gain, dim=2),
        against="2 dimensions, which have no hubs",
        number="points of recall",
        rule="mean",
        null=0.0,
    ),
    Measured(
        "hubness",
        says="Hubness falls.",
        measure=growth,
        wanted=below(0.0),
        control=partial(growth, dim=2),
        against="2 dimensions, which have no hubs",
        number="growth of the skewness",
        rule="mean",
    ),
]
