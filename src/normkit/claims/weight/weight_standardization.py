"""What weight standardization claims."""

from functools import partial

import torch
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import cosine, randn


def filters(standardized):
    """The filters of a convolution and the gradient of the raw ones, flat."""
    raw, module = randn(5, 3, 3, 3).requires_grad_(), nk.WeightStandardization((5, 3, 3, 3), eps=0.0)
    weight = module(raw) if standardized else raw
    y = F.conv2d(randn(4, 3, 8, 8), weight).tanh()
    slope = torch.autograd.grad((y * torch.randn_like(y)).sum(), raw)[0]
    return weight.detach().flatten(1), slope.flatten(1)


def gradient_mean(seed, standardized=True):
    """The largest sum of a filter's gradient, as a share of its length."""
    _, slope = filters(standardized)
    return (slope.sum(1).abs() / slope.norm(dim=1)).max()


def radial(seed, standardized=True):
    """The largest cosine of a filter and its gradient."""
    return cosine(*filters(standardized))


PLAIN = "a plain convolution"
CLAIMS = [
    Identity(
        "gradient-mean",
        says="The gradient of each filter has a mean of 0, with an eps of 0.",
        measure=gradient_mean,
        bound=1e-8,
        breaks=partial(gradient_mean, standardized=False),
        against=PLAIN,
        number="sum over length",
    ),
    Identity(
        "gradient-orthogonal",
        says="The gradient is orthogonal to the standardized filter, with an eps of 0.",
        measure=radial,
        bound=1e-8,
        breaks=partial(radial, standardized=False),
        against=PLAIN,
        number="cosine",
    ),
]
