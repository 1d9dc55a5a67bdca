"""What is claimed of an inverted softmax over two banks."""

from functools import partial

import normkit as nk
from normkit.claims.inference._retrieval import recall, scores, skewness
from normkit.claims.kinds import Measured, above, below

BETA = 20.0


def difference(seed, of=recall, hubs=1.0):
    """A number of the ranking with both banks, less that with the bank of queries alone; both of one sharpness."""
    own = scores(hubs=hubs)
    both = nk.dual_inverted_softmax(*own, beta_query=BETA, beta_gallery=BETA)
    return of(both) - of(nk.inverted_softmax(own.queries, own.bank, beta=BETA))


CLAIMS = [
    Measured(
        "recall",
        says="With hubs among queries and items its recall is a point above that of one bank.",
        measure=difference,
        wanted=above(1.0),
        control=partial(difference, hubs=0.0),
        against="no hubs",
        number="points of recall",
        rule="mean",
        null=0.0,
    ),
    Measured(
        "hubness",
        says="Its hubness is lower.",
        measure=partial(difference, of=skewness),
        wanted=below(0.0),
        control=partial(difference, of=skewness, hubs=0.0),
        against="no hubs",
        number="difference of the skewness",
        rule="mean",
    ),
]
