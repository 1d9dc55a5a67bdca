"""What is claimed of the dynamic inverted softmax."""

from functools import partial

import normkit as nk
from normkit.claims.inference._retrieval import recall, scores
from normkit.claims.kinds import Measured, above, below


def loss(seed, method=nk.dynamic_inverted_softmax, foreign=2.0):
    """The points of recall that a bank of queries about something else costs."""
    own = scores(foreign=foreign)
    return recall(own.queries) - recall(method(own.queries, own.bank))


CLAIMS = [
    Measured(
        "foreign-bank",
        says="With a bank of unrelated queries it loses half a point of recall at most.",
        measure=loss,
        wanted=below(0.5),
        control=partial(loss, method=nk.inverted_softmax),
        against="the inverted softmax",
        number="points of recall lost",
        rule="mean",
    ),
    Measured(
        "foreign-bank-plain",
        says="The inverted softmax loses more than two.",
        measure=partial(loss, method=nk.inverted_softmax),
        wanted=above(2.0),
        control=partial(loss, method=nk.inverted_softmax, foreign=0.0),
        against="a bank of queries like its own",
        number="points of recall lost",
        rule="mean",
    ),
]
