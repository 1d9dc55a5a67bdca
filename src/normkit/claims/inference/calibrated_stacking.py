"""What is claimed of a constant off the scores of classes that were seen."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.imbalance import SEEN, UNSEEN, shares, zero_shot
from normkit.claims.kinds import Trained, above, below


def unseen(seed, gamma=0.0):
    """How many samples of unseen classes are right among all classes, of a hundred."""
    scores, labels, seen = zero_shot()
    return shares(nk.calibrated_stacking(scores, seen, gamma=gamma), labels)[1]


def gain(seed, trained_on=SEEN):
    """The points of the harmonic mean of both shares that the best constant brings, chosen on other samples."""
    scores, labels, seen = zero_shot(trained_on)
    half = torch.rand(len(labels)) < 0.5
    gammas = torch.linspace(0, 1, 41).tolist()

    def harmonic(gamma, which):
        one, other = shares(nk.calibrated_stacking(scores[which], seen, gamma=gamma), labels[which])
        return 2 * one * other / (one + other) if one + other else 0.0

    best = max(gammas, key=lambda gamma: harmonic(gamma, half))
    return harmonic(best, ~half) - harmonic(0.0, ~half)


CLAIMS = [
    Trained(
        "without",
        says="Without it fewer than 20 % of the samples of unseen classes are right among all classes.",
        measure=unseen,
        wanted=below(20.0),
        control=partial(unseen, gamma=0.5),
        against="a constant of a half",
        number="percent that are right",
        null=None,
        bed="gaussians",
    ),
    Trained(
        "repairs",
        says="One constant brings 20 points of the harmonic mean of both shares, or more.",
        measure=gain,
        wanted=above(20.0),
        control=partial(gain, trained_on=SEEN + UNSEEN),
        against="all classes seen",
        number="points",
        bed="gaussians",
    ),
]
