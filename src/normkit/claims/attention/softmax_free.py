"""What SOFT claims of its landmarks."""

import itertools
import math
from functools import partial

import torch

import normkit as nk
from normkit.claims._clock import growth
from normkit.claims.attention._cost import WIDTH
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

SIDE, LENGTHS = 16, (1024, 2304, 4096)


def errors(smooth=True):
    """The relative error against the full Gaussian kernel, of 4, 16 and 64 landmarks, at a layer as it starts."""
    q, v = randn(1, 1, SIDE, SIDE, WIDTH), randn(1, 1, SIDE**2, WIDTH)
    if smooth:
        q = torch.nn.functional.avg_pool2d(randn(1, WIDTH, SIDE + 6, SIDE + 6), 7, stride=1)
        q = (q / q.std()).permute(0, 2, 3, 1)[:, None]
    q, relative_errors = q.flatten(2, 3), []
    near = q * WIDTH**-0.25
    full = (-torch.cdist(near, near).square() / 2).exp() @ v
    for ratio in (8, 4, 2):
        core = nk.SoftmaxFree(WIDTH, heads=1, size=(SIDE, SIDE), ratio=ratio).double()
        relative_errors.append(((core(q, q, v) - full).norm() / full.norm()).detach())
    return relative_errors


def last(seed, smooth=True):
    """The error with 64 landmarks."""
    return errors(smooth)[-1]


def rise(seed, back=False):
    """The largest ratio of an error to that with a quarter of the landmarks."""
    relative_errors = errors()[:: -1 if back else 1]
    return max(after / before for before, after in itertools.pairwise(relative_errors))


def slope_of_time(seed, full=False):
    """How the time grows with the number of tokens, with 16 landmarks."""

    def call_of(length):
        q, side = torch.randn(1, 1, length, WIDTH), math.isqrt(length)
        core = nk.SoftmaxFree(WIDTH, heads=1, size=(side, side), ratio=side // 4)
        return lambda: (-torch.cdist(q, q).square() / 2).exp() @ q if full else core(q, q, q)

    with torch.no_grad():
        return growth(call_of, LENGTHS)


CLAIMS = [
    Measured(
        "nears",
        says="With 64 landmarks for 256 smooth tokens it is within a tenth of the full Gaussian kernel, as it starts.",
        measure=last,
        wanted=below(0.1),
        control=partial(last, smooth=False),
        against="tokens that are noise",
        number="relative error",
        draws=5,
    ),
    Measured(
        "more-landmarks",
        says="The error falls each time that the landmarks are four times as many.",
        measure=rise,
        wanted=below(1.0),
        control=partial(rise, back=True),
        against="fewer landmarks each time",
        number="largest ratio of errors",
        draws=5,
    ),
    Measured(
        "linear",
        says="Its time grows as the number of tokens.",
        measure=slope_of_time,
        wanted=below(1.2),
        control=partial(slope_of_time, full=True),
        against="the full kernel",
        number="slope",
        draws=3,
        rule="median",
    ),
]
