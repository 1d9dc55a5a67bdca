"""Calibrated stacking: a constant off the scores of the classes that were trained on."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores


@method(
    "calibrated-stacking",
    paper="An Empirical Study and Analysis of Generalized Zero-Shot Learning for Object Recognition in the Wild (Chao "
    "et al., 2016), arXiv 1605.04253",
    evidence="equations",
    shape="N G",
    over="",
    inputs={"seen": "G : bool"},
    example={"gamma": 0.5},
)
def calibrated_stacking(scores: Tensor, seen: Tensor, *, gamma: float | None) -> Tensor:
    """Subtract a constant from the scores of the classes that were seen in training.

    For generalized zero-shot learning, where nearly every sample goes to a class that was seen: one number, chosen on
    classes that are held out as if unseen, repairs most of it.

        out[n, c] = scores[n, c] - gamma [c was seen]

    Args:
        scores: of the classes, (N, C).
        seen: which classes were, boolean (C,).
        gamma: the constant; None: infinite, so that only unseen classes are left.

    ``ausuc`` measures over all constants.

    An Empirical Study and Analysis of Generalized Zero-Shot Learning (Chao et al., 2016), arXiv 1605.04253.
    """
    wide = of_classes("calibrated-stacking", scores, seen)
    if gamma is None:
        return torch.where(seen, -torch.inf, wide).to(scores.dtype)
    return (wide - check.number("calibrated-stacking", "gamma", gamma) * seen.to(wide.dtype)).to(scores.dtype)


def of_classes(owner: str, given: Tensor, seen: Tensor) -> Tensor:
    """Check scores (N, C) and which classes were seen, and return the scores in the accurate type."""
    wide = scores(owner, "scores", given, (None, None))
    check.mask(owner, "seen", seen, (given.shape[1],), given)
    return wide
