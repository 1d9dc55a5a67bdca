"""How much of what goes into a layer is always zero: it tells of functions between modules."""

from __future__ import annotations

from torch import Tensor, nn

from normkit.watching.signals.signal import LAYER, Call, Place, Signal, others, share_of, some
from normkit.watching.store import LEAST


def read(call: Call) -> Tensor | None:
    """Return the share of channels of the input that are always zero."""
    if call.x is None or call.x.dim() < 2:
        return None
    x = some(call.x)
    return share_of(x.abs().amax(others(x, call.axis)) == 0)[None]


def fits(place: Place) -> bool:
    """Whether a module is a layer that is fed numbers."""
    return place.what == LAYER and not isinstance(place.module, nn.Embedding)


SIGNAL = Signal("inputs", {"dead_inputs": LEAST}, read, fits)
