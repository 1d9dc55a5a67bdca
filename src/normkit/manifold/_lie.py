"""What the decompositions of matrix groups share."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.manifold import _symmetric
from normkit.manifold._points import square

GROUPS = ("gl2", "sl2")


def elements(owner: str, g: Tensor, size: int | None = None) -> Tensor:
    """Require matrices with positive determinants, and return them in the accurate type."""
    wide = square(owner, "g", g, 3, size)
    if check.readable(g) and g.numel():
        least = torch.linalg.det(wide.detach()).min().item()
        if not least > 0:
            raise ValueError(f"{check.whose(owner)}: g must hold matrices with positive determinants, not {least:.6g}")
    return wide


def polar(g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the positive definite factor, its logarithm, and the rotation."""
    of = _symmetric.spectrum(g @ g.mT)
    spd = _symmetric.sqrt(of)
    inverse = _symmetric.rsqrt(of)
    stretch = _symmetric.log(of) / 2
    return spd, stretch, inverse @ g
