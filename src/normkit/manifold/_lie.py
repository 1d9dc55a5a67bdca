"""What the decompositions of matrix groups share."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.manifold import _symmetric
from normkit.manifold._points import square
from normkit.statistics import full_precision

GROUPS = ("gl2", "sl2")


def elements(owner: str, g: Tensor, size: int | None = None) -> Tensor:
    """Require matrices with positive determinants, and return them in the accurate type."""
    wide = square(owner, "g", g, 3, size)
    # the sign alone: of tiny matrices the determinant itself is 0
    if check.readable(g) and g.numel() and not (torch.linalg.slogdet(wide.detach()).sign > 0).all():
        least = torch.linalg.det(wide.detach()).min().item()
        raise ValueError(f"{check.whose(owner)}: g must hold matrices with positive determinants, not {least:.6g}")
    return wide


def polar(g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the positive definite factor, its logarithm, and the rotation.

    By the singular values of g = U S Vᵀ: of those of g gᵀ, the squares, the small ones are lost. The derivative is
    written as terms that are zero, as in `_symmetric`: torch's own of the singular vectors is not finite where singular
    values are equal.
    """
    still = g.detach()
    u, s, v = (part.flip(axis) for part, axis in zip(torch.linalg.svd(still), (-1, -1, -2), strict=True))
    s = torch.maximum(s, _symmetric.finite(s))
    with full_precision(g):
        turn = torch.linalg.det(u @ v).sign()[..., None, None]  # -1 where rounding may mirror the least direction
        v = torch.cat([turn * v[..., :1, :], v[..., 1:, :]], -2)
        moved = u.mT @ _symmetric.moved(g) @ v.mT
        rows, others = s.unsqueeze(-1), s.unsqueeze(-2)
        stretched = (others * moved + rows * moved.mT) / (rows + others)
        turned = (moved - moved.mT) / (rows + others)
        spd = u @ (torch.diag_embed(s) + stretched) @ u.mT
        stretch = _symmetric.log(_symmetric.Spectrum(s, u, stretched))
        return spd, stretch, u @ (v + turned @ v)
