"""What is claimed of layer norms that were removed."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn, randomized


def folding_error(seed, fixed=True):
    """How far the next linear layer is from one that has the norm in it."""
    norm, linear, x = randomized(nk.FakeLayerNorm(6)), randomized(nn.Linear(6, 4)), 3 * randn(8, 5, 6)
    norm(x)
    norm.sync_std()
    if fixed:
        norm.remove()
    centred = torch.eye(6, dtype=torch.float64) - 1 / 6
    weight = linear.weight * (norm.weight / norm.fixed_std) @ centred
    return gap(linear(norm(x)), F.linear(x, weight, linear.bias + linear.weight @ norm.bias))


CLAIMS = [
    Identity(
        "folds",
        says="A layer norm with a fixed deviation folds into the next linear layer.",
        measure=folding_error,
        bound=1e-12,
        breaks=partial(folding_error, fixed=False),
        against="a true layer norm",
    )
]
