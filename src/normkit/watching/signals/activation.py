"""How large what a layer gives is, how it is spread, and how much of it is always zero."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.watching.signals.signal import Call, Signal, others, share_of, some, stride_over, vector
from normkit.watching.store import BESIDE, LARGEST, LEAST, MEAN, MISSING

ENTRIES = 2**16  # of which the kurtosis is taken: its error is then a few percent
TINY = 1e-30
VALUES = 16  # of a channel that is to be dead: a live ReLU is zero in half of them, behind dropout in more


def read(call: Call) -> Tensor | None:
    """Return mean, root mean square, the largest size with its channel and token, kurtosis and the share of dead.

    A dead channel is zero for all samples and places, if they are many.
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
    return vector(mean, power.sqrt(), largest, channel, token, kurtosis, dead_share(peaks, y))


def dead_share(peaks: Tensor, y: Tensor) -> Tensor:
    """Return the share of channels whose largest size is zero; missing where that is of few values each."""
    return share_of(peaks == 0) if y.numel() >= VALUES * peaks.numel() else torch.tensor(MISSING, device=y.device)


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
