"""What is claimed of the dual dynamic inverted softmax."""

from functools import partial

import normkit as nk
from normkit.claims.inference._retrieval import recall, scores
from normkit.claims.kinds import Measured, below

BETAS = {"beta_query": 20.0, "beta_gallery": 20.0}


def excess(seed, size=10, foreign=0.0, method=nk.dual_dynamic_inverted_softmax):
    """The points of recall that two banks cost, less half of what they cost the dual inverted softmax."""
    made = scores(size=size, foreign=foreign)
    before = recall(made.queries)
    own, other = (before - recall(kind(*made, **BETAS)) for kind in (method, nk.dual_inverted_softmax))
    return own - other / 2


CLAIMS = [
    Measured(
        f"{name}-bank",
        says=f"With banks {made} it loses half as much recall as the dual inverted softmax at most.",
        measure=partial(excess, **options),
        wanted=below(0.0),
        control=partial(excess, **options, method=nk.dual_inverted_softmax),
        against="the dual inverted softmax",
        number="points of recall more than half",
        rule="mean",
    )
    for name, made, options in (
        ("small", "of 10", {}),
        ("foreign", "of something else", {"size": 1000, "foreign": 2.0}),
    )
]
