"""Words of candidates, of which some are padding."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check

PADDING = -100


def words(owner: object, name: str, labels: Tensor, logits: Tensor, below: int = 2**62) -> tuple[Tensor, Tensor]:
    """Return the words of all places but the last axis of ``logits``, 0 for padding, and where there is none."""
    check.shape(owner, name, labels, logits.shape[:-1], logits)
    if labels.dtype is not torch.int64:
        raise TypeError(f"{check.whose(owner)}: {name} must be an int64 tensor, not {labels.dtype}")
    mask = labels != PADDING
    known = torch.where(mask, labels, 0)
    check.index(owner, name, known, logits.shape[:-1], below, logits)
    return known, mask


def positives(owner: object, asked: int | None, candidates: int, least: int) -> int:
    """Return how many of the candidates are good ones."""
    count = candidates // 2 if asked is None else asked
    if not least <= count <= candidates:
        raise ValueError(
            f"{check.whose(owner)}: positives must be from {least} to the number of candidates, which is {candidates}, "
            f"not {count}"
        )
    return count
