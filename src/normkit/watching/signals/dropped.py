"""How many choices of a router experts had no room for."""

from __future__ import annotations

from torch import Tensor

from normkit.watching.signals.signal import Call, Signal
from normkit.watching.store import MEAN


def read(call: Call) -> Tensor | None:
    """Return the share of choices that experts had no room for, where a mixture says so."""
    dropped = call.left("dropped")
    return dropped.detach().float().reshape(1) if isinstance(dropped, Tensor) and dropped.numel() == 1 else None


SIGNAL = Signal("dropped", {"dropped": MEAN}, read, lambda place: hasattr(place.module, "dropped"))
