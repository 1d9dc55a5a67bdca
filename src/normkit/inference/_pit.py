"""What the calibration of predicted distributions shares: probabilities of outcomes, all in [0, 1]."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.inference._scores import scores

SLACK = 1e-4  # what rounding may put outside of [0, 1]


def outcomes(owner: str, name: str, pit: Tensor, like: Tensor | None = None) -> Tensor:
    """Require a predicted distribution's values (N,) at the outcomes, and return them in the accurate type."""
    wide = scores(owner, name, pit, (None,), like)
    if check.readable(wide) and not ((wide >= -SLACK) & (wide <= 1 + SLACK)).all():
        raise ValueError(f"{owner}: {name} must lie in [0, 1], but goes from {wide.min():.4g} to {wide.max():.4g}")
    return wide.clamp(0, 1)


def fill(owner: str, name: str, x: Tensor) -> None:
    """Require at least one row."""
    if not len(x):
        raise ValueError(f"{check.whose(owner)}: {name} must not be empty")
