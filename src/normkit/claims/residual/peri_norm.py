"""What Peri-LN claims."""

from functools import partial

import torch
from torch import nn

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn, relative


def block(kind, factor):
    """A block whose sublayers end in matrices that are multiplied by a factor."""
    sublayers = [nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8, bias=False)) for _ in range(2)]
    for sublayer in sublayers:
        sublayer[2].weight.data.mul_(factor)
    return kind(dim=8, attention=sublayers[0], feedforward=sublayers[1]).double()


def pair(seed, kind):
    """The block with its own output weights, and with a thousand times these."""
    for factor in (1.0, 1e3):
        torch.manual_seed(seed)
        yield block(kind, factor)


def moved(seed, kind=nk.PeriNorm):
    """The relative change of the block's output."""
    (one, other), x = pair(seed, kind), randn(6, 8)
    return relative(other(x), one(x))


def slope_error(seed, kind=nk.PeriNorm):
    """How far the gradient of the output weights is from a thousandth, relative."""
    x, lengths = randn(6, 8), []
    for model in pair(seed, kind):
        torch.manual_seed(seed + 1)
        y = model(x)
        weights = [model.attention[2].weight, model.feedforward[2].weight]
        slopes = torch.autograd.grad((y * torch.randn_like(y)).sum(), weights)
        lengths.append(torch.stack([slope.norm() for slope in slopes]))
    return (1e3 * lengths[1] / lengths[0] - 1).abs().max()


CLAIMS = [
    Identity(
        "output-weights",
        says="A thousand times the output weights leave a block's output as it is.",
        measure=moved,
        bound=1e-3,
        breaks=partial(moved, kind=nk.PreNorm),
        against="pre-norm",
        number="relative change",
    ),
    Identity(
        "gradient",
        says="Their gradient falls by a thousand.",
        measure=slope_error,
        bound=1e-2,
        breaks=partial(slope_error, kind=nk.PreNorm),
        against="pre-norm",
        number="relative error",
    ),
]
