"""What ShiftQuant claims of channels of many sizes."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

CHANNELS, LEVELS = 64, 2**3 - 1


def relative_error(y, x):
    """The root mean square, over channels, of the relative error."""
    return ((y - x).square().mean(0) / x.square().mean(0)).mean().sqrt()


def rounded(x, scale):
    """The nearest numbers of a grid."""
    return (x / scale).round() * scale


def over_channels(seed, groups=4):
    """Its error over that of a scale a channel; of one scale for all where there are no groups."""
    x = randn(256, CHANNELS) * torch.logspace(-3, 0, CHANNELS, dtype=torch.float64)
    own = rounded(x, x.abs().amax(0) / LEVELS)
    y = nk.ShiftQuant(CHANNELS, bits=4, num_groups=groups)(x) if groups else rounded(x, x.abs().max() / LEVELS)
    return relative_error(y, x) / relative_error(own, x)


CLAIMS = [
    Measured(
        "near-channels",
        says="With 4 groups, over three decades of channels, its error is within 30 % of that of a scale a channel.",
        measure=over_channels,
        wanted=below(1.3),
        control=partial(over_channels, groups=0),
        against="one scale for all channels",
        number="error over that of a scale a channel",
    ),
    Measured(
        "near-channels-enough-groups",
        says="The same with a group for every octave, 10 of them.",
        measure=partial(over_channels, groups=10),
        wanted=below(1.3),
        control=partial(over_channels, groups=0),
        against="one scale for all channels",
        number="error over that of a scale a channel",
    ),
]
