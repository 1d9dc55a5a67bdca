"""How many of the numbers that a norm gives are exactly zero."""

from torch import Tensor

from normkit.watching.signals.signal import NORMED, Call, Signal, share_of, some
from normkit.watching.store import MEAN


def read(call: Call) -> Tensor | None:
    """Return the share of zeros."""
    return None if call.y is None else share_of(some(call.y) == 0)[None]


SIGNAL = Signal("zeros", {"zero_share": MEAN}, read, lambda place: place.what == NORMED)
