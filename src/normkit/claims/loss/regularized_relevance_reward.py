"""What is claimed of answers that are padded with repeats."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above, below
from normkit.claims.measures import randn

QUESTIONS, N, WORDS = 300, 8, 30


def padded(seed, penalty=True):
    """The share of questions whose best of 8 responses is one of the two that say their own words three times."""
    length = torch.randint(15, WORDS + 1, (QUESTIONS, N))
    tokens = torch.randint(1000, (QUESTIONS, N, WORDS)).repeat(1, 1, 3)
    place = torch.arange(3 * WORDS)
    responses = torch.where(place < 3 * length[..., None], tokens.gather(2, place % length[..., None]), 0)
    times = torch.where(torch.arange(N) < 2, 3, 1)
    relevance = (2 + 0.3 * randn(QUESTIONS, N)).flatten()
    reward = nk.regularized_relevance_reward(
        relevance, responses.flatten(0, 1), (times * length).flatten(), repetition_penalty=penalty
    )
    return (reward.view(QUESTIONS, N).argmax(1) < 2).double().mean()


CLAIMS = [
    Measured(
        "padding",
        says="Padding with repeats no longer wins: fewer than 5 % of the best of 8 are padded.",
        measure=padded,
        wanted=below(0.05),
        control=partial(padded, penalty=False),
        against="relevance times length",
        number="share of the picks",
    ),
    Measured(
        "padding-wins",
        says="Under relevance times length it wins more than half of them.",
        measure=partial(padded, penalty=False),
        wanted=above(0.5),
        control=padded,
        against="the penalty of repeats",
        number="share of the picks",
    ),
]
