"""What the Wasserstein regularizer claims."""

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn


def shuffled():
    """A weight, and the same entries in another order."""
    weight = randn(8, 5)
    return weight, weight.flatten()[torch.randperm(40)].view(8, 5)


def loss(seed):
    """The loss of the shuffled start."""
    start, weight = shuffled()
    module = nk.WassersteinInitRegularizer((8, 5)).double()
    module.reset(start)
    return module(weight)


def pull_to_start(seed):
    """The same with a pull of each entry to its own start."""
    start, weight = shuffled()
    return (weight - start).square().sum()


CLAIMS = [
    Identity(
        "permutation",
        says="A permutation of the initial weights costs nothing.",
        measure=loss,
        bound=1e-15,
        breaks=pull_to_start,
        against="a pull of each entry to its own start",
        number="loss",
    )
]
