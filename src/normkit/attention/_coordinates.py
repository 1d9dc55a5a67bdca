"""Tokens that are points of a mesh: their coordinates stand before the features of every head."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.attention._linear import LinearCore
from normkit.statistics import accurate


class CoordinateCore(LinearCore):
    """A core that takes ``pos`` (N, T, pos_dim), where ``pos_dim`` is not 0."""

    def __init__(self, head_dim: int, heads: int, causal: bool, pos_dim: int):
        super().__init__(head_dim, heads, causal)
        self.pos_dim = check.size(self, "pos_dim", pos_dim, 0)

    def _check_pos(self, pos: Tensor | None, q: Tensor) -> None:
        if self.pos_dim == 0:
            if pos is not None:
                raise ValueError(
                    f"{type(self).__name__}: pos is given, but pos_dim is 0; a mask goes by its name, mask="
                )
        elif pos is None:
            shape = f"(N, T, {self.pos_dim})"
            raise ValueError(f"{type(self).__name__}: pos is missing; with pos_dim={self.pos_dim} it must be {shape}")
        else:
            check.values(self, "pos", pos, (q.shape[0], q.shape[2], self.pos_dim), like=q)

    def _join(self, pos: Tensor | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Put the coordinates before the features of each tensor."""
        if pos is None:
            return tensors
        coords = accurate(pos).to(tensors[0].dtype).unsqueeze(1).expand(-1, self.heads, -1, -1)
        return tuple(torch.cat([coords, x], -1) for x in tensors)
