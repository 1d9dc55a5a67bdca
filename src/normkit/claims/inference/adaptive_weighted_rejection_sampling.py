"""What is claimed of adaptive weighted rejection sampling."""

import math
from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn, slope
from normkit.inference.adaptive_weighted_rejection_sampling import sample

DRAWS, SIZES = 2000, (100, 1000, 10000)


def error(seed, weighted=True):
    """How many standard errors the mean weight is from the mass of the three allowed tokens of six."""
    log_probs, accept = torch.log_softmax(randn(6), 0), torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
    noise = -(-torch.rand(DRAWS, 6, dtype=torch.float64).log()).log()
    log_weights = torch.stack(
        [nk.adaptive_weighted_rejection_sampling(log_probs, accept, row).log_weight for row in noise]
    )
    weights = log_weights.exp() if weighted else 1 + 0.01 * randn(DRAWS)
    mass = (log_probs.exp() * accept).sum()
    return (weights.mean() - mass).abs() / (weights.std() / DRAWS**0.5)


def growth(seed, rare=False):
    """The slope of the number of calls against that of the vocabulary, both as logarithms.

    Probabilities fall as one over the rank, and half of the tokens are allowed; or all are alike, and one is allowed.
    """
    calls = []
    for size in SIZES:
        law = torch.zeros(size, dtype=torch.float64) if rare else -torch.arange(1, size + 1, dtype=torch.float64).log()
        counts = []
        for _ in range(15):
            allowed = torch.randperm(size) < (1 if rare else size // 2)
            counts.append(sample(torch.log_softmax(law, 0), allowed.tolist().__getitem__)[2])
        calls.append(math.log(sum(counts)))
    return slope([math.log(size) for size in SIZES], calls)


CLAIMS = [
    Measured(
        "weights",
        says="The mean of its weights is the mass of the allowed tokens, within three standard errors of 2,000 draws.",
        measure=error,
        wanted=below(3.0),
        control=partial(error, weighted=False),
        against="weights of about 1",
        number="standard errors",
        draws=3,
    ),
    Measured(
        "calls",
        says="Its calls grow more slowly than the root of the vocabulary, where half of the tokens are allowed.",
        measure=growth,
        wanted=below(0.5),
        control=partial(growth, rare=True),
        against="one allowed token among equals",
        number="slope",
        draws=5,
    ),
]
