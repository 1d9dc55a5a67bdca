"""What the paper of instance normalization claims."""

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import change, randn, relative


def images():
    """Images, and the same with another contrast and brightness in each channel."""
    x = randn(4, 3, 8, 8)
    contrast, brightness = torch.rand(2, 4, 3, 1, 1, dtype=torch.float64) * 3 + 0.2
    return x, contrast * x + brightness


def with_contrast(seed):
    """What changes with the contrast."""
    return change(nk.InstanceNorm(3, eps=0.0), *images())


def of_the_batch(seed):
    """The same with batch statistics."""
    return change(nk.BatchNorm(3, eps=0.0).double(), *images())


def within_eps(seed, eps=1e-5):
    """What changes with the contrast, relative, as a share of eps over the smaller variance."""
    x, other = images()
    least = torch.stack([x, other]).var((-2, -1), correction=0).amin()
    norm = nk.InstanceNorm(3, eps=eps)
    return relative(norm(other), norm(x)) / (1e-5 / least)


def with_larger_eps(seed):
    """The same with a hundred times the eps."""
    return within_eps(seed, eps=1e-3)


CLAIMS = [
    Identity(
        "contrast",
        says="Contrast and brightness of each image and channel do not matter.",
        measure=with_contrast,
        bound=1e-10,
        breaks=of_the_batch,
        against="batch norm",
    ),
    Identity(
        "only-eps",
        says="With eps the output moves by eps over the variance at most.",
        measure=within_eps,
        bound=1.0,
        breaks=with_larger_eps,
        against="a hundred times the eps",
        number="share of eps / variance",
    ),
]
