"""What methods that take any flow share: an affine one to begin with, and densities through it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check


class Affine(nn.Module):
    """The map z = x matrixᵀ + shift, the identity at first."""

    def __init__(self, dim: int):
        super().__init__()
        self.matrix, self.shift = nn.Parameter(torch.eye(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image of ``x`` (N, D), and the log-determinant of each sample."""
        check.features_last(self, x, len(self.shift))
        matrix = self.matrix.to(x.dtype)
        return x @ matrix.mT + self.shift.to(x.dtype), torch.linalg.slogdet(matrix)[1].expand(len(x))

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return what ``z`` is the image of, and the log-determinant of the way back."""
        check.features_last(self, z, len(self.shift), "z")
        matrix = self.matrix.to(z.dtype)
        x = torch.linalg.solve(matrix, (z - self.shift.to(z.dtype)).mT).mT
        return x, -torch.linalg.slogdet(matrix)[1].expand(len(z))


def flow_of(owner: object, name: str, flow: int | nn.Module) -> nn.Module:
    """Return the flow that a module or a dimension stands for."""
    return flow if isinstance(flow, nn.Module) else Affine(check.size(owner, name, flow))


def width(flow: nn.Module) -> int | None:
    """The dimension of an affine flow; None: only the flow knows."""
    return len(flow.shift) if isinstance(flow, Affine) else None


def back(flow: nn.Module, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the flow's inverse, and the log-determinant of it, which not all return."""
    preimage = flow.inverse(z)  # type: ignore[operator]
    return preimage if isinstance(preimage, tuple) else (preimage, -flow(preimage)[1])
