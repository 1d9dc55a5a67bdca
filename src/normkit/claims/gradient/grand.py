"""What is claimed of GraNd and of EL2N, which is near to it."""

from functools import partial

import torch
from torch import nn

import normkit as nk
from normkit.claims.kinds import Trained, above
from normkit.claims.trained import Case, case, passed, rank_correlation
from normkit.gradient.grand import scores


def module_of(own: Case):
    """The network as a module."""
    linears = [nn.Linear(weight.shape[1], weight.shape[0], bias=False).double() for weight in own.weights]
    for linear, weight in zip(linears, own.weights, strict=True):
        linear.weight.data.copy_(weight)
    return nn.Sequential(*(part for linear in linears for part in (linear, nn.ReLU())))[:-1]


def agreement(seed, shuffled=False):
    """The rank correlation of EL2N with the length of the whole gradient, after 20 passes over the digits."""
    own = case(seed, steps=20)
    lengths = scores(module_of(own), own.x, own.labels)
    nearby = nk.el2n(passed(own.weights, own.x)[-1], own.labels)
    return rank_correlation(lengths, nearby[torch.randperm(len(nearby))] if shuffled else nearby)


CLAIMS = [
    Trained(
        "near-el2n",
        says="After a few passes EL2N orders samples as their whole gradients do, with a rank correlation of 0.8.",
        measure=agreement,
        wanted=above(0.8),
        control=partial(agreement, shuffled=True),
        against="shuffled samples",
        number="rank correlation",
        null=None,
        bed="trained-digits",
    )
]
