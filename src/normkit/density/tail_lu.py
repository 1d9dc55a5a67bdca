"""A linear map that keeps heavy tails where they are: block triangular, factored into L and U."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Transform
from normkit.statistics import accurate, reals


@method(
    "tail-lu",
    paper="Marginal Tail-Adaptive Normalizing Flows (Laszkiewicz et al., 2022), arXiv 2206.10311",
    shape="N C",
    example={"num_heavy": 2},
)
class TailLU(Transform):
    """Mix light-tailed coordinates among themselves, and heavy-tailed ones with all.

    For the layers between the couplings of a flow on ``tail-adaptive-base``: a full matrix would make light margins
    heavy, here heavy inputs never reach light outputs. On a Gaussian base any invertible layer does.

    Light coordinates come first. With L unit lower and U upper triangular, the diagonal of U softplus(d) + eps,

        z = W x + bias,    W = [[L1 U1, 0], [cross, L3 U3]],    log_det = sum log diag

    Args:
        dim: D.
        num_heavy: how many coordinates, the last, are heavy.
        eps: the least diagonal.

    ``forward(x)``, (N, D), returns ``z`` and ``log_det`` (N,); ``inverse(z)`` returns x. State: ``light_lower``,
    ``light_upper``, row by row, ``light_diagonal``, the same three of ``heavy``, ``cross`` and ``bias``. Starts at the
    identity, but for a trace of ``cross``.

    Marginal Tail-Adaptive Normalizing Flows (Laszkiewicz et al., 2022), arXiv 2206.10311.
    """

    def __init__(self, dim: int, *, num_heavy: int, eps: float = 1e-3):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.num_heavy = check.size(self, "num_heavy", num_heavy, 0, self.dim)
        self.eps = check.eps(self, eps)
        if self.eps >= 1:
            raise ValueError(f"{type(self).__name__}: eps must be below 1, where the identity is, not {eps}")
        light = dim - num_heavy
        start = math.log(math.expm1(1 - self.eps))
        for name, n in (("light", light), ("heavy", num_heavy)):
            self.register_parameter(f"{name}_lower", nn.Parameter(torch.zeros(n * (n - 1) // 2)))
            self.register_parameter(f"{name}_upper", nn.Parameter(torch.zeros(n * (n - 1) // 2)))
            self.register_parameter(f"{name}_diagonal", nn.Parameter(torch.full((n,), start)))
        self.cross = nn.Parameter(torch.full((num_heavy, light), 1e-4))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image of ``x`` (N, D), and the log-determinant of each sample."""
        wide = reals(self, "x", x, (None, self.dim))
        light, heavy = wide.split([self.dim - self.num_heavy, self.num_heavy], 1)
        lower, upper = self._factors("light", wide.dtype)
        heavy_lower, heavy_upper = self._factors("heavy", wide.dtype)
        crossed = F.linear(light, accurate(self.cross).to(wide.dtype))
        mixed = F.linear(F.linear(light, upper), lower), crossed + F.linear(F.linear(heavy, heavy_upper), heavy_lower)
        z = torch.cat(mixed, 1) + self.bias.to(wide.dtype)
        log_det = upper.diagonal().log().sum() + heavy_upper.diagonal().log().sum()
        return z.to(x.dtype), log_det.expand(len(x)).to(x.dtype)

    def inverse(self, z: Tensor) -> Tensor:
        """Return what ``z`` (N, D) is the image of."""
        wide = reals(self, "z", z, (None, self.dim)) - accurate(self.bias)
        light, heavy = wide.split([self.dim - self.num_heavy, self.num_heavy], 1)
        light = self._solved("light", light)
        heavy = self._solved("heavy", heavy - F.linear(light, accurate(self.cross).to(wide.dtype)))
        return torch.cat([light, heavy], 1).to(z.dtype)

    def _factors(self, name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """L and U of the light or of the heavy coordinates."""
        below, above, diagonal = (getattr(self, f"{name}_{part}").to(dtype) for part in ("lower", "upper", "diagonal"))
        n, device = len(diagonal), diagonal.device
        lower = torch.eye(n, dtype=dtype, device=device)
        lower = lower.index_put(tuple(torch.tril_indices(n, n, -1, device=device)), below)
        upper = torch.diag(F.softplus(diagonal) + self.eps)
        return lower, upper.index_put(tuple(torch.triu_indices(n, n, 1, device=device)), above)

    def _solved(self, name: str, z: Tensor) -> Tensor:
        lower, upper = self._factors(name, z.dtype)
        half = torch.linalg.solve_triangular(lower, z.mT, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(upper, half, upper=True).mT
