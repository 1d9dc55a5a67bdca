"""NOTE's memory: a sample of a stream in which no predicted class has more places than another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method

NAME = "prediction-balanced-reservoir"
EMPTY = -1


@method(
    NAME,
    paper="NOTE: Robust Continual Test-time Adaptation Against Temporal Correlation (Gong et al., 2022), arXiv "
    "2208.05117",
    shape="T : index 4",
    inputs={"draws": "T 3 : unit"},
    example={"capacity": 6, "classes": 4},
)
def prediction_balanced_reservoir(labels: Tensor, draws: Tensor, *, capacity: int, classes: int) -> Tensor:
    """Keep a bounded sample of a stream, balanced over the classes that were predicted.

    For adapting on streams whose classes come one after the other. Where the world changes as well, take
    ``category-balanced-memory``.

    When the memory is full, a sample of class c, not among the largest classes, takes the place of a random one of a
    random largest class. If c is among them, it takes the place of a random one of its own class with the probability
    held_c / seen_c, and else is dropped.

    Args:
        labels: the predicted classes, (T,).
        draws: uniform numbers in [0, 1), (T, 3): whether to take, which largest class, which of its samples.
        capacity: places of the memory.
        classes: K.

    Returns the numbers of the samples that are held after each, (T, capacity), class by class, oldest first; -1 is an
    empty place. ``note`` uses the same memory.

    NOTE (Gong et al., 2022), arXiv 2208.05117.
    """
    check.size(NAME, "capacity", capacity), check.size(NAME, "classes", classes)
    check.index(NAME, "labels", labels, (None,), classes, labels)
    check.floating(NAME, draws, "draws")
    check.shape(NAME, "draws", draws, (len(labels), 3), labels)
    held: list[list[int]] = [[] for _ in range(classes)]
    seen = [0] * classes
    rows = []
    for number, (label, draw) in enumerate(zip(labels.tolist(), draws.tolist(), strict=True)):
        take(held, seen, number, label, draw, capacity)
        row = [one for own in held for one in own]
        rows.append(row + [EMPTY] * (capacity - len(row)))
    return torch.tensor(rows, dtype=torch.long, device=labels.device).reshape(len(labels), capacity)


def take(held: list[list[Any]], seen: list[int], item: Any, label: int, draw: Sequence[float], capacity: int) -> None:
    """Let a memory, the items of each class in a list, take in an item or drop it."""
    seen[label] += 1
    sizes = [len(own) for own in held]
    if sum(sizes) >= capacity:
        largest = [c for c, size in enumerate(sizes) if size == max(sizes)]
        if label not in largest:
            giving = largest[int(draw[1] * len(largest))]
        elif draw[0] <= sizes[label] / seen[label]:
            giving = label
        else:
            return
        held[giving].pop(int(draw[2] * sizes[giving]))
    held[label].append(item)
