"""What the paper of unified normalization claims."""

from torch import nn
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn, randomized


def folding_error(norm, scale):
    """How far a linear layer behind a norm is from one that has the norm's ``scale`` in it."""
    linear, x = randomized(nn.Linear(6, 4)), 3 * randn(8, 5, 6)
    bias = linear.bias + linear.weight @ norm.bias
    return gap(linear(norm(x)), F.linear(x, linear.weight * scale(norm, x), bias))


def folds(seed):
    """Of unified normalization, whose scale is a running one."""
    norm = randomized(nk.UnifiedNorm(6))
    for _ in range(5):
        norm(2 * randn(8, 5, 6))
    return folding_error(norm.eval(), lambda norm, x: norm.weight / (norm.running_var + norm.eps).sqrt())


def layernorm(seed):
    """Of a layer norm, with its mean scale."""
    return folding_error(
        randomized(nk.LayerNorm(6)), lambda norm, x: norm.weight / x.var(-1, correction=0).mean().sqrt()
    )


CLAIMS = [
    Identity(
        "folds",
        says="In evaluation it folds into the next linear layer.",
        measure=folds,
        bound=1e-12,
        breaks=layernorm,
        against="a layer norm",
    )
]
