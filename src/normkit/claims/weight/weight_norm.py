"""What weight normalization claims."""

from functools import partial

import torch
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Identity, above
from normkit.claims.measures import cosine, randn


def steps(normalized):
    """The raw weight and its gradient at each of 20 steps of SGD."""
    raw, module = randn(6, 8).requires_grad_(), nk.WeightNorm((6, 8)).double()
    x, target = randn(32, 8), randn(32, 6)
    for _ in range(20):
        weight = module(raw) if normalized else raw
        slope = torch.autograd.grad((F.linear(x, weight).tanh() - target).square().mean(), raw)[0]
        yield raw.detach().clone(), slope
        raw.data.sub_(0.3 * slope)


def radial(seed, normalized=True):
    """The largest cosine of a slice and its gradient."""
    return max(cosine(raw, slope) for raw, slope in steps(normalized))


def least_growth(seed, normalized=True):
    """The least change of a slice's length from step to step."""
    lengths = torch.stack([raw.norm(dim=1) for raw, _ in steps(normalized)])
    return lengths.diff(dim=0).min()


CLAIMS = [
    Identity(
        "orthogonal",
        says="The raw weight is orthogonal to its gradient.",
        measure=radial,
        bound=1e-6,
        breaks=partial(radial, normalized=False),
        against="a plain linear layer",
        number="cosine",
    ),
    Identity(
        "length-grows",
        says="Under SGD its length never falls.",
        measure=least_growth,
        bound=above(0.0),
        breaks=partial(least_growth, normalized=False),
        against="a plain linear layer",
        number="least change of length",
    ),
]
