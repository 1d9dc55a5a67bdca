"""What a block does to the stream that passes through it."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.watching.signals.signal import Call, Signal, some, vector
from normkit.watching.store import MEAN

TINY = 1e-30


def read(call: Call) -> Tensor | None:
    """Return how large the input was, and the cosine to the output."""
    if call.x is None or call.y is None or not passes(call):
        return None
    x, y = some(call.x), some(call.y)
    sizes = torch.linalg.vector_norm(x) * torch.linalg.vector_norm(y)
    return vector(x.square().mean().sqrt(), (x * y).sum() / sizes.clamp(min=TINY))


def passes(call: Call) -> bool:
    """Whether what comes out of a module has the shape of what went in, and several axes."""
    return call.x is not None and call.y is not None and call.x.dim() > 1 and call.x.shape == call.y.shape


SIGNAL = Signal("stream", {"input_rms": MEAN, "cosine": MEAN}, read, lambda place: place.block)
