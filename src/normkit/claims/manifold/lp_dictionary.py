"""What is claimed of the third power for dictionaries."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn
from normkit.optional import library

ATOMS, SPARSITY, PROBLEMS, MOST, NEAR = 12, 0.25, 12, 60, 1e-3
MANY, FEW = 64_000, 1000  # samples: with few of them neither power comes so near; of noisy ones few are enough
METHOD = nk.create("lp-dictionary")


def problem(noise):
    """A dictionary and data whose codes are sparse."""
    dictionary = torch.linalg.qr(randn(ATOMS, ATOMS)).Q
    samples = FEW if noise else MANY
    codes = randn(ATOMS, samples) * (torch.rand(ATOMS, samples) < SPARSITY)
    return dictionary, dictionary @ codes + noise * randn(ATOMS, samples)


def steps(dictionary, data, p):
    """The steps until the error is small, from random atoms; after all of them also the error."""
    atoms = torch.linalg.qr(randn(ATOMS, ATOMS)).Q
    for step in range(MOST):
        atoms = nk.lp_dictionary(atoms, data, p=p)[0]
        error = METHOD.error(atoms, dictionary).item()
        if error < NEAR:
            return step + 1, error
    return MOST, error


def chance(seed, noise=0.0, p=3):
    """The probability, were it chance, of so many problems on which p is better than 4."""
    wins, played = 0, 0
    for _ in range(PROBLEMS):
        dictionary, data = problem(noise)
        own, other = (steps(dictionary, data, power)[1 if noise else 0] for power in (p, 4))
        wins, played = wins + (own < other), played + (own != other)
    return library("scipy.stats").binomtest(int(wins), max(played, 1), alternative="greater").pvalue


CLAIMS = [
    Measured(
        "faster",
        says="With the third power dictionaries take fewer steps than with the fourth.",
        measure=chance,
        wanted=below(0.05),
        control=partial(chance, p=4),
        against="the fourth power from another start",
        number="p of the sign test over 12 problems",
        draws=3,
    ),
    Measured(
        "noise",
        says="Under noise of a tenth its error is smaller.",
        measure=partial(chance, noise=0.1),
        wanted=below(0.05),
        control=partial(chance, noise=0.1, p=4),
        against="the fourth power from another start",
        number="p of the sign test over 12 problems",
        draws=3,
    ),
]
