"""What MUNIT claims of gains and shifts."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn


def statistics_error(seed, free=True):
    """The largest relative error of a channel's mean and deviation after 500 steps of descent."""
    norm, x = nk.AdaINModulated(4, eps=1e-12), randn(1, 4, 8, 8)
    mean, deviation = randn(1, 4) + 3, randn(1, 4).abs() + 1.5
    gain, shift = torch.ones_like(mean).requires_grad_(), torch.zeros_like(mean).requires_grad_()
    learned = [gain, shift] if free else [shift]
    for _ in range(500):
        y = norm(x, gain, shift)
        errors = y.mean((2, 3)) - mean, y.std((2, 3), correction=0) - deviation
        slopes = torch.autograd.grad(sum(error.square().sum() for error in errors), learned)
        for parameter, slope in zip(learned, slopes, strict=True):
            parameter.data.sub_(0.1 * slope)
    return max((errors[0] / mean).abs().max().item(), (errors[1] / deviation).abs().max().item())


CLAIMS = [
    Measured(
        "any-statistics",
        says="A gain and a shift for each channel alone give fixed features any mean and deviation.",
        measure=statistics_error,
        wanted=below(1e-4),
        control=partial(statistics_error, free=False),
        against="the gain kept at 1",
        number="relative error",
    )
]
