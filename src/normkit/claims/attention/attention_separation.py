"""What is claimed of tokens that attention sets apart, and of how weights answer to scores."""

import itertools
from functools import partial

import torch

import normkit as nk
from normkit.attention.attention_separation import jacobian_norm
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn, slope

LENGTH = 1024


def tokens(count, length=LENGTH, alike=False):
    """Rows of attention of normal scores, and tokens of length 1; all alike in the other case."""
    x = torch.nn.functional.normalize(randn(count, length, 8), dim=-1)
    return torch.softmax(randn(count, length), -1), x[:, :1].expand_as(x) if alike else x


def largest_rise(seed, shares=(0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)):
    """The largest ratio of the distance at a number of selected tokens to that at the next smaller one."""
    weights, x = tokens(4)
    distances = [nk.attention_separation(weights, x, top=int(share * LENGTH)).distance.mean() for share in shares]
    return max(after / before for before, after in itertools.pairwise(distances))


def separable(seed, alike=False):
    """The largest share of separable tokens, over lengths to 1,024 and 5 to 100 selected ones."""
    fractions = []
    for length in (256, 1024):
        weights, x = tokens(16, length)
        if alike:  # one token has all of the weight, and is far from the others
            weights = 0.01 * weights + 0.99 * torch.nn.functional.one_hot(torch.zeros(16).long(), length)
            x[:, 1:] = -x[:, :1]
        fractions += [
            nk.attention_separation(weights, x, top=top).fraction.mean() for top in ((1,) if alike else (5, 20, 100))
        ]
    return max(fractions)


def slope_error(seed, low=1.0, high=32.0):
    """How far the slope of the Jacobian's norm against the temperature, both as logarithms, is from -1."""
    logits, norms = randn(8, 256), []
    temperatures = torch.logspace(torch.tensor(low).log2(), torch.tensor(high).log2(), 6, 2.0, dtype=torch.float64)
    for temperature in temperatures:
        norms.append(jacobian_norm(logits, temperature=float(temperature)).log().mean())
    return abs(slope(temperatures.log(), torch.stack(norms)) + 1)


CLAIMS = [
    Measured(
        "distance",
        says="The distance of the selected tokens from the others falls with each further one, to 0 where all are.",
        measure=largest_rise,
        wanted=below(1.0),
        control=partial(largest_rise, shares=(0.99, 0.9, 0.5, 0.1, 0.01)),
        against="fewer tokens each time",
        number="largest ratio",
        draws=5,
    ),
    Measured(
        "separable",
        says="Of 5 to 100 selected ones among 256 or 1,024 random tokens 85 % at most are separable.",
        measure=separable,
        wanted=below(0.85),
        control=partial(separable, alike=True),
        against="one token has all of the weight, and the others lie opposite",
        number="share of the selected",
        draws=5,
    ),
    Measured(
        "temperature",
        says="The weights' sensitivity goes as one over the temperature, from 1 to 32 times the scores' deviation.",
        measure=slope_error,
        wanted=below(0.1),
        control=partial(slope_error, low=0.01, high=0.3),
        against="temperatures of 0.01 to 0.3",
        number="|slope + 1|",
        draws=5,
    ),
]
