"""AUSUC: accuracy on seen and unseen classes over all constants between them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference.calibrated_stacking import of_classes


class AUSUC(NamedTuple):
    """The area, the accuracies at 0, the best harmonic mean, and the constant that it is reached at."""

    area: Tensor
    seen_accuracy: Tensor
    unseen_accuracy: Tensor
    harmonic: Tensor
    gamma: Tensor


@method(
    "ausuc",
    paper="An Empirical Study and Analysis of Generalized Zero-Shot Learning for Object Recognition in the Wild (Chao "
    "et al., 2016), arXiv 1605.04253",
    shape="N C",
    over="N",
    inputs={"target": "N : index C", "seen": "C : bool"},
    exempt={"gradcheck": "accuracies have no gradient"},
)
@torch.no_grad()
def ausuc(scores: Tensor, target: Tensor, seen: Tensor) -> AUSUC:
    """Sweep the constant that is taken off seen classes, and measure the area under both accuracies.

    For comparing methods of generalized zero-shot learning, whatever constant they come with. To classify, one constant
    has to be chosen: see ``calibrated-stacking``.

    A sample goes to its best unseen class once gamma >= b = best seen score - best unseen score. Accuracies are means
    over classes of the share of the class that is right, with all classes as candidates; from gamma = -inf on there is
    a point at each distinct b.

    Args:
        scores: of the classes, (N, C).
        target: the right classes, int64 (N,).
        seen: which classes were, boolean (C,); at least one is, and one is not.

    Returns ``area``, trapezoids of the seen accuracy over the unseen one; ``seen_accuracy`` and ``unseen_accuracy`` at
    gamma = 0; ``harmonic``, the largest harmonic mean, and its ``gamma``. A class without samples adds 0 to its mean.

    An Empirical Study and Analysis of Generalized Zero-Shot Learning (Chao et al., 2016), arXiv 1605.04253.
    """
    wide = of_classes("ausuc", scores, seen)
    check.index("ausuc", "target", target, scores.shape[:1], scores.shape[1], scores)
    if not len(scores) or not seen.any() or seen.all():
        raise ValueError("ausuc: scores must have a row, and seen must be true of one class and false of another")
    best_seen, as_seen = torch.where(seen, wide, -torch.inf).max(1)
    best_unseen, as_unseen = torch.where(seen, -torch.inf, wide).max(1)
    bias = best_seen - best_unseen
    share = 1 / torch.bincount(target, minlength=len(seen)).double()[target]  # of its class
    # what a sample takes from the accuracy on seen classes, and adds to the other, when it moves
    lost = torch.where(as_seen == target, share, 0) / seen.sum()
    won = torch.where(as_unseen == target, share, 0) / (~seen).sum()
    values, group = bias.unique(return_inverse=True)
    steps = torch.zeros(2, len(values), dtype=share.dtype, device=wide.device)
    steps = steps.index_add(1, group, torch.stack([-lost, won])).cumsum(1)
    on_seen, on_unseen = torch.nn.functional.pad(steps, (1, 0)) + torch.stack([lost.sum(), lost.new_zeros(())])[:, None]
    summary = _summary(on_seen, on_unseen, values.to(share.dtype))
    return AUSUC(*(value.to(scores.dtype) for value in summary))


def _summary(on_seen: Tensor, on_unseen: Tensor, values: Tensor) -> AUSUC:
    """The measures of a course of accuracies, whose first point is that before all ``values``."""
    at_zero = (values <= 0).sum()
    both = on_seen + on_unseen
    harmonic = torch.where(both > 0, 2 * on_seen * on_unseen / torch.where(both > 0, both, 1), 0)
    best = harmonic.argmax()
    gamma = values[(best - 1).clamp(min=0)]
    return AUSUC(torch.trapezoid(on_seen, on_unseen), on_seen[at_zero], on_unseen[at_zero], harmonic[best], gamma)
