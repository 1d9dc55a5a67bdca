"""What is claimed of answer choices that are normalized, and of the mass that they hold."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn
from normkit.inference.answer_choice_normalization import attentiveness

QUESTIONS, CHOICES = 2000, 4


def rank_correlation(seed, competing=1.0):
    """Spearman's correlation of the choices' mass with the points of accuracy that PMI brings.

    A model is unsure between four meanings. Words of one meaning share it, the choice among them, by a part that
    depends on the choice; the less of it goes to others, the larger the mass.
    """
    mass, gains = [], []
    for exponent in (0.0, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5):
        meanings = torch.log_softmax(randn(QUESTIONS, CHOICES) + 1.5 * torch.eye(CHOICES)[0], 1)
        part = exponent * (competing * randn(QUESTIONS, CHOICES).abs() + (1 - competing)).neg()
        log_probs, prior = meanings + part, part + 0.3 * randn(QUESTIONS, CHOICES)
        right = [100 * (nk.answer_choice_normalization(log_probs, *against, mode=mode).argmax(1) == 0).double().mean()
                 for mode, against in (("pmi", (prior,)), ("none", ()))]  # fmt: skip
        gains.append(right[0] - right[1])
        mass.append(attentiveness(log_probs).mean())
    ranks = torch.stack([torch.stack(x).argsort().argsort().double() for x in (mass, gains)])
    return torch.corrcoef(ranks)[0, 1]


CLAIMS = [
    Measured(
        "pmi",
        says="What PMI brings falls as the choices' mass grows; words of one meaning are made, no model is asked.",
        measure=rank_correlation,
        wanted=below(-0.5),
        control=partial(rank_correlation, competing=0.0),
        against="words of one meaning that take the same part of each choice",
        number="Spearman's correlation",
        rule="mean",
        reach="proxy",
    )
]
