"""How far apart the biases lie that a router adds to scores before it chooses experts."""

from __future__ import annotations

from torch import Tensor

from normkit.watching.signals.routing import selection_bias
from normkit.watching.signals.signal import Call, Signal
from normkit.watching.store import MEAN

BOUNDED = ("sigmoid", "softmax")  # of normkit's routers; others with a bias take a sigmoid


def read(call: Call) -> Tensor | None:
    """Return how far the largest and the least selection bias lie apart, where scores lie between 0 and 1."""
    bias = selection_bias(call.module)
    if bias is None or getattr(call.module, "score", "sigmoid") not in BOUNDED:
        return None
    return (bias.detach().float().amax() - bias.detach().float().amin())[None]


SIGNAL = Signal("selection bias", {"bias_spread": MEAN}, read, lambda place: selection_bias(place.module) is not None)
