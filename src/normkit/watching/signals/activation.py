"""How large what a layer gives is, how it is spread, and how much of it is always zero."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.watching.signals.signal import (
    MOST,
    Call,
    Signal,
    others,
    plain,
    share_of,
    some,
    stride_over,
    stride_past,
    vector,
)
from normkit.watching.store import BESIDE, LARGEST, LEAST, MEAN, MISSING

ENTRIES = 2**16  # of which the kurtosis is taken: its error is then a few percent
TINY = 1e-30
VALUES = 16  # of a channel that is to be dead: a live ReLU is zero in half of them, behind dropout in more
PICTURES = 8, 16  # at least, and at least of many: a live channel may well be zero all over one, or over all of a class


def read(call: Call) -> Tensor | None:
    """Return mean, root mean square, the largest size with its channel and token, kurtosis and the share of dead.

    A dead channel is zero for all samples and places, if they are many (:func:`dead_share`).
    """
    if call.y is None or call.y.dim() < 2:
        return None
    y = some(call.y)
    over = others(y, call.axis)
    power, mean = y.square().mean(), y.mean()
    peaks = y.abs().amax(over)
    largest, channel = peaks.max(0)
    column = y.index_select(call.axis, channel[None]).abs().reshape(len(y), -1)
    token = column.argmax() % column.shape[1]
    spread = (power - mean.square()).clamp(min=TINY)
    kurtosis = (stride_over(y, ENTRIES) - mean).square().square().mean() / spread.square()
    return vector(mean, power.sqrt(), largest, channel, token, kurtosis, dead_share(call.y, call.axis))


def dead_share(x: Tensor, axis: int) -> Tensor:
    """Return the share of channels that are zero wherever it is looked; missing where that is of few values each.

    The places of one picture are no samples, so that of huge maps more pictures are looked at, and fewer places.
    """
    few = False
    if axis == 1 and x.dim() > 2:
        few = len(x) < PICTURES[0]
        if x.numel() > MOST:
            x = x[:: max(len(x) // PICTURES[1], 1)].flatten(2)
            x = x[..., :: stride_past(x.shape[2], -(-x.numel() // MOST))]
        x = plain(x)
    else:
        x = some(x)
    peaks = x.abs().amax(others(x, axis))
    few |= x.numel() < VALUES * peaks.numel()
    return torch.tensor(MISSING, device=x.device) if few else share_of(peaks == 0)


SIGNAL = Signal(
    "activation",
    {
        "mean": MEAN,
        "rms": MEAN,
        "largest": LARGEST,
        "channel": BESIDE,
        "token": BESIDE,
        "kurtosis": MEAN,
        "dead": LEAST,
    },
    read,
)
