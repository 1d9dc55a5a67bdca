"""What is claimed of training on the samples of the largest EL2N."""

import functools
from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Trained, above
from normkit.claims.trained import STEPS, case, held_out, passed, train


@functools.cache
def kept(seed, which):
    """The accuracy of a network that was trained on a half of the digits, or on all."""
    own, early = case(seed), case(seed, steps=20)
    scores = nk.el2n(passed(early.weights, own.x)[-1], own.labels)
    torch.manual_seed(seed)
    order = {"largest": -scores, "smallest": scores}.get(which, torch.rand(len(scores)))
    rows = order.argsort()[: len(scores) if which == "all" else len(scores) // 2]
    return held_out(own, train(case(seed, steps=0).weights, own.x[rows], own.labels[rows], steps=STEPS))


def ahead(seed, which, over):
    """By how many points a half is ahead."""
    return kept(seed, which) - kept(seed, over)


CLAIMS = [
    Trained(
        "as-all",
        says="With the half of the largest scores a network is not behind that of all digits by more than a point.",
        measure=partial(ahead, which="largest", over="all"),
        wanted=above(-1.0),
        control=partial(ahead, which="smallest", over="all"),
        against="the half of the smallest scores",
        number="points",
        null=None,
        bed="trained-digits",
    ),
    Trained(
        "over-any-half",
        says="That half is better than any other.",
        measure=partial(ahead, which="largest", over="any"),
        wanted=above(0.0),
        control=partial(ahead, which="smallest", over="any"),
        against="the half of the smallest scores",
        number="points",
        bed="trained-digits",
    ),
]
