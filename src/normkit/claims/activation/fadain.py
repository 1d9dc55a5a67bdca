"""What TSIT claims of AdaIN inside masks."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn

HOLE = torch.zeros(1, 1, 12, 12, dtype=torch.float64)
HOLE[..., 2:9, 3:11] = 1


def translated(masked=True):
    """A content, a style, and the output."""
    content, style = 2 * randn(1, 3, 12, 12) + 1, 3 * randn(1, 3, 12, 12) - 2
    mask = HOLE if masked else None
    return content, style, nk.FAdaIN(3)(content, style, content_mask=mask, style_mask=mask)


def inside(x):
    """Mean and deviation inside the mask."""
    pixels = x[:, :, HOLE[0, 0] > 0]
    return pixels.mean(-1), pixels.std(-1)


def inside_error(seed, masked=True):
    """How far the statistics inside are from the style's inside."""
    _, style, y = translated(masked)
    return max(gap(a, b) for a, b in zip(inside(y), inside(style), strict=True))


def outside_change(seed, masked=True):
    """What changes outside."""
    content, _, y = translated(masked)
    return ((y - content) * (1 - HOLE)).abs().max()


CLAIMS = [
    Identity(
        "inside",
        says="Masked pixels get the mean and the deviation of the style's masked pixels.",
        measure=inside_error,
        bound=1e-5,
        breaks=partial(inside_error, masked=False),
        against="no mask",
    ),
    Identity(
        "outside",
        says="Pixels outside of the mask keep their bits.",
        measure=outside_change,
        bound=0.0,
        breaks=partial(outside_change, masked=False),
        against="no mask",
        number="largest change",
    ),
]
