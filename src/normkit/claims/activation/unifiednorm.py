"""What the paper of unified normalization claims."""

import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Identity, Measured, below
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


def growth(filtered, window=4):
    """By how much a batch of twelve times the size moves the running variance."""
    norm = nk.UnifiedNorm(8, window_size=window, warmup_iters=0, outlier_filtration=filtered).double()
    scale = (0.5 * randn(8)).exp()
    for _ in range(1100):
        norm(scale * randn(16, 16, 8))
    before = norm.running_var.clone()
    norm(12 * scale * randn(16, 16, 8))
    return (norm.running_var / before).max()


def filtered_growth(seed):
    """With filtration."""
    return growth(True)


def plain_growth(seed):
    """Without filtration and without a window, as the variance of a batch norm."""
    return growth(False, window=1)


def against_unfiltered(seed, one=filtered_growth):
    """The growth as a share of that without filtration."""
    other = growth(False)
    torch.manual_seed(seed)
    return one(seed) / other


CLAIMS = [
    Identity(
        "folds",
        says="In evaluation it folds into the next linear layer.",
        measure=folds,
        bound=1e-12,
        breaks=layernorm,
        against="a layer norm",
    ),
    Measured(
        "outlier",
        says="With filtration an outlier batch hardly moves the running variance.",
        measure=filtered_growth,
        wanted=below(1.3),
        control=plain_growth,
        against="no window and no filtration",
        number="running variance after over before",
        draws=3,
    ),
    Measured(
        "outlier-filtered",
        says="It moves it less than without filtration.",
        measure=against_unfiltered,
        wanted=below(1.0),
        control=lambda seed: against_unfiltered(seed, plain_growth),
        against="no window and no filtration",
        number="share of the growth without filtration",
        draws=3,
    ),
]
