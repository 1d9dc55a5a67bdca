"""What Delta L normalization claims."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below


def masks(equal):
    """A batch of responses of many lengths, or of one."""
    lengths = torch.full((16,), 60) if equal else torch.randint(5, 200, (16,))
    return lengths.double(), (torch.arange(200) < lengths[:, None]).double()


def variance(mode, lengths, mask):
    """The variance of the gradient where that of a response grows with its length."""
    return (nk.DeltaL(mode).weights(mask).square() * lengths).sum()


def share(seed, equal=False):
    """Its variance as a share of the other unbiased mode's."""
    batch = masks(equal)
    return variance("delta-l", *batch) / variance("dr-grpo", *batch)


def bias(seed, mode="delta-l"):
    """How far the weights' sum is from one over the constant length, relative."""
    return (nk.DeltaL(mode).weights(masks(False)[1]).sum() * 200 - 1).abs()


CLAIMS = [
    Measured(
        "least-variance",
        says="Its gradient varies least of the unbiased modes, where a response's variance grows with its length.",
        measure=share,
        wanted=below(0.999),
        control=partial(share, equal=True),
        against="responses of one length",
        number="share of the variance",
    ),
    Measured(
        "unbiased",
        says="Its weights add up to the same for every batch.",
        measure=bias,
        wanted=below(1e-6),
        control=partial(bias, mode="grpo"),
        against="the mode grpo",
        number="relative error",
    ),
]
