"""What the Wasserstein regularizer claims."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity, Trained, below
from normkit.claims.measures import randn
from normkit.claims.tasks import ahead, better


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
    ),
    better(
        "over-none",
        "In the last tasks of 20 it is ahead of no penalty, by a point or more.",
        "wasserstein",
        over="none",
        by=1.0,
        against="no penalty, from another start",
    ),
    Trained(
        "as-l2-init",
        says="In the last tasks of 20 it is within a point of a pull to the start.",
        measure=partial(ahead, penalty="wasserstein", over="l2-init"),
        wanted=below(1.0),
        control=partial(ahead, penalty="none", over="l2-init"),
        against="no penalty",
        number="points",
        rule="within",
        bed="tasks",
    ),
]
