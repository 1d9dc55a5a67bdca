"""The matrices that a weight can be folded to, and blocks of their columns."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check

ROWS = {0: (0,), 1: (0, 2), 2: (0, 3), 3: (0, 2, 3)}  # axes (out, in, kh, kw) that a scheme lays along the rows
COLUMNS = {0: (1, 2, 3), 1: (3, 1), 2: (2, 1), 3: (1,)}


def as_kernel(owner: object, weight: Tensor, name: str = "weight") -> Tensor:
    """Return a weight as a convolution's, (out, in, kh, kw); a linear one has a 1x1 kernel."""
    check.floating(owner, weight, name)
    if weight.dim() not in (2, 4):
        shape = tuple(weight.shape)
        raise ValueError(f"{check.whose(owner)}: {name} must be (out, in) or (out, in, kh, kw), but has shape {shape}")
    return weight if weight.dim() == 4 else weight[:, :, None, None]


def fold(kernel: Tensor, scheme: int) -> Tensor:
    """Lay a kernel out as the matrix of a scheme."""
    ordered = kernel.permute(*ROWS[scheme], *COLUMNS[scheme])
    rows = ordered.shape[: len(ROWS[scheme])].numel()
    return ordered.reshape(rows, -1)


def unfold(matrix: Tensor, scheme: int, shape: torch.Size) -> Tensor:
    """Undo :func:`folded`, for a kernel of ``shape``."""
    order = [*ROWS[scheme], *COLUMNS[scheme]]
    back = sorted(range(4), key=order.__getitem__)
    return matrix.reshape([shape[axis] for axis in order]).permute(back)


def curve(kernel: Tensor, splits: int, scheme: int) -> Tensor:
    """Return the largest relative singular value, over blocks of columns, that is lost where j are kept."""
    matrix = fold(kernel, scheme)
    blocks = matrix.unflatten(1, (splits, -1)).transpose(0, 1)
    return torch.linalg.svdvals(blocks).amax(0) / torch.linalg.matrix_norm(matrix, 2)
