"""How alike the tokens are that a block gives."""

from __future__ import annotations

from torch import Tensor

from normkit.watching.signals.signal import Call, Signal, rows_of, some, vector
from normkit.watching.signals.stream import TINY, passes
from normkit.watching.store import MEAN

ROWS = 128  # tokens of a sample whose likeness is taken: their products are 128 x 128, whatever the width


def read(call: Call) -> Tensor | None:
    """Return how alike the tokens of the output are, and their effective rank; None where a sample is one token.

    Tokens, or places of a picture, are those of the first sample. Alike is the power of the mean token in that of all:
    1 where they all are the same. The rank is the participation ratio of the eigenvalues l of their products,
    (sum l)² / sum l².
    """
    if call.y is None or not passes(call):
        return None
    rows = rows_of(some(call.y)[:1], call.axis, ROWS)
    if len(rows) < 2:
        return None
    gram = rows @ rows.mT
    power = gram.diagonal().mean().clamp(min=TINY)
    alike = gram.mean() / power
    rank = (len(rows) * power).square() / gram.square().sum().clamp(min=TINY)
    return vector(alike, rank)


SIGNAL = Signal("tokens", {"alike": MEAN, "rank": MEAN}, read, lambda place: place.block)
