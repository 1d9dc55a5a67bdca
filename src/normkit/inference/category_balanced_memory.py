"""RoTTA's memory: few samples of a stream, balanced over classes, the old and unsure ones leaving first."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method

NAME = "category-balanced-memory"
EMPTY = -1


class History(NamedTuple):
    """The samples held after each, and their ages in capacities, (T, capacity) each."""

    held: Tensor
    ages: Tensor


@method(
    NAME,
    paper="Robust Test-Time Adaptation in Dynamic Scenarios (Yuan et al., 2023), arXiv 2303.13899",
    shape="T : index 4",
    inputs={"uncertainties": "T : unit"},
    example={"capacity": 6, "classes": 4},
)
def category_balanced_memory(
    labels: Tensor,
    uncertainties: Tensor,
    *,
    capacity: int,
    classes: int,
    age_weight: float = 1.0,
    uncertainty_weight: float = 1.0,
) -> History:
    """Keep few samples of a stream, about as many of each predicted class, new and sure ones before others.

    For adapting on streams whose classes and whose world change. Where the world stays and only classes come in runs,
    take ``prediction-balanced-reservoir``.

    With u the uncertainty of a sample, K classes, its score is

        age_weight / (1 + exp(-age / capacity)) + uncertainty_weight u / log K

    A class that holds fewer than capacity / K samples takes a new one in; if the memory is full, a sample of one of the
    largest classes has to leave. Any other class lets one of its own leave. The one of the highest score leaves, the
    last of equals; but if the new one's score is no lower, that is dropped. Then everything held is one older.

    Args:
        labels: the predicted classes, (T,).
        uncertainties: of the predictions, (T,): their entropies.
        capacity: places of the memory.
        classes: K, at least 2.
        age_weight: of the age.
        uncertainty_weight: of the uncertainty.

    Returns ``held``, the numbers of the samples after each, class by class, oldest first, -1 in an empty place, and
    ``ages`` over the capacity, 0 there. ``rotta`` uses the same memory.

    Robust Test-Time Adaptation in Dynamic Scenarios (Yuan et al., 2023), arXiv 2303.13899.
    """
    check.size(NAME, "capacity", capacity), check.size(NAME, "classes", classes, least=2)
    rule = (check.number(NAME, "age_weight", age_weight), check.number(NAME, "uncertainty_weight", uncertainty_weight))
    check.index(NAME, "labels", labels, (None,), classes, labels)
    check.floating(NAME, uncertainties, "uncertainties")
    check.shape(NAME, "uncertainties", uncertainties, (len(labels),), labels)
    held: list[list[list[Any]]] = [[] for _ in range(classes)]
    numbers, ages = [], []
    for number, (label, unsure) in enumerate(zip(labels.tolist(), uncertainties.tolist(), strict=True)):
        take(held, number, label, unsure, capacity, *rule)
        entries = [entry for own in held for entry in own]
        room = capacity - len(entries)
        numbers.append([item for item, _, _ in entries] + [EMPTY] * room)
        ages.append([age / capacity for _, _, age in entries] + [0.0] * room)
    shape, place = (len(labels), capacity), labels.device
    return History(
        torch.tensor(numbers, dtype=torch.long, device=place).reshape(shape),
        torch.tensor(ages, dtype=uncertainties.dtype, device=place).reshape(shape),
    )


def take(
    held: list[list[list[Any]]],
    item: Any,
    label: int,
    unsure: float,
    capacity: int,
    age_weight: float = 1.0,
    uncertainty_weight: float = 1.0,
) -> None:
    """Let a memory, entries of item, uncertainty and age of each class in a list, take in an item or drop it."""

    def score(unsure: float, age: int) -> float:
        return age_weight / (1 + math.exp(-age / capacity)) + uncertainty_weight * unsure / math.log(len(held))

    sizes = [len(own) for own in held]
    if sizes[label] >= capacity / len(held):
        giving = [label]
    else:
        giving = [c for c, size in enumerate(sizes) if size == max(sizes)] if sum(sizes) >= capacity else []
    scores = [(score(u, age), c, i) for c in giving for i, (_, u, age) in enumerate(held[c])]
    highest, where, index = max(scores, default=(math.inf, -1, -1))
    if not scores or highest > score(unsure, 0):
        if scores:
            held[where].pop(index)
        held[label].append([item, unsure, 0])
    for own in held:
        for entry in own:
            entry[2] += 1
