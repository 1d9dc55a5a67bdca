"""What a block does to the stream that passes through it."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.watching.signals.signal import Call, Signal, rows_of, some, vector
from normkit.watching.store import MEAN

ROWS = 128  # tokens of a sample whose likeness is taken: their products are 128 x 128, whatever the width
TINY = 1e-30


def read(call: Call) -> Tensor | None:
    """Return how large the input was, and the cosine to the output."""
    if call.x is None or call.y is None or not _passes(call):
        return None
    x, y = some(call.x), some(call.y)
    sizes = torch.linalg.vector_norm(x) * torch.linalg.vector_norm(y)
    return vector(x.square().mean().sqrt(), (x * y).sum() / sizes.clamp(min=TINY))


def read_tokens(call: Call) -> Tensor | None:
    """Return how alike the tokens of the output are, and their effective rank; None where a sample is one token.

    Tokens, or places of a picture, are those of the first sample. Alike is the power of the mean token in that of all:
    1 where they all are the same. The rank is the participation ratio of the eigenvalues l of their products,
    (sum l)² / sum l².
    """
    if call.y is None or not _passes(call):
        return None
    rows = rows_of(some(call.y)[:1], call.axis, ROWS)
    if len(rows) < 2:
        return None
    gram = rows @ rows.mT
    power = gram.diagonal().mean().clamp(min=TINY)
    alike = gram.mean() / power
    rank = (len(rows) * power).square() / gram.square().sum().clamp(min=TINY)
    return vector(alike, rank)


def _passes(call: Call) -> bool:
    return call.x is not None and call.y is not None and call.x.dim() > 1 and call.x.shape == call.y.shape


STREAM = Signal("stream", {"input_rms": MEAN, "cosine": MEAN}, read)
TOKENS = Signal("tokens", {"alike": MEAN, "rank": MEAN}, read_tokens)
