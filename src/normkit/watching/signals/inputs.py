"""How much of what goes into a layer is always zero: it tells of functions between modules."""

from __future__ import annotations

from torch import Tensor, nn

from normkit.watching.signals.activation import dead_share
from normkit.watching.signals.signal import LAYER, Call, Place, Signal
from normkit.watching.store import LEAST


def read(call: Call) -> Tensor | None:
    """Return the share of channels of the input that are always zero; missing where a batch is small.

    An input that no gradient reaches is data, and may well have empty columns.
    """
    if call.x is None or call.x.dim() < 2 or not call.x.requires_grad:
        return None
    return dead_share(call.x, call.axis)[None]


def fits(place: Place) -> bool:
    """Whether a module is a layer that is fed numbers."""
    return place.what == LAYER and not isinstance(place.module, nn.Embedding)


SIGNAL = Signal("inputs", {"dead_inputs": LEAST}, read, fits)
