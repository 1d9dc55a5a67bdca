"""GNP: a pooling between sum, mean, maximum and minimum, learned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.activation.sets._graphs import sum_by
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate


@method(
    "gnp",
    paper="Learning to Pool in Graph Neural Networks for Extrapolation (Ko et al., 2021), arXiv 2106.06210",
    evidence="abstract",
    shape="N C",
    over="rows",
    inputs={"index": "N : index K"},
    example={"sets": 4},
    provenance="the paper's body could not be read and there is no code: equations of this library for what its "
    "abstract says",
    exempt={
        "empty": "a set without rows still has a result",
    },
)
class GNP(Method):
    """Pool the rows of each set by a norm of learned order, divided by a learned power of their number.

    For graph networks that shall extrapolate to larger graphs. For a set of n rows and a feature of half s (the first
    dim // 2 features are half 0),

        y = n^(-q_s) * (sum over the set of (abs(x) + eps)^p_s)^(1 / p_s)

    with the exponent p_0 = softplus(p[0]) > 0 in the first half and p_1 = -softplus(p[1]) < 0 in the second. Exponent
    1 is the sum, with q = 1 the mean; a large one the maximum, a large negative one the minimum. Signs are lost: it
    comes behind a ReLU, and a linear map behind it mixes the halves. It starts at exponents 1 and -1, with q = 0.

    Args:
        dim: C, features of a row.
        eps: added to the absolute values; it decides what a zero gives under a negative exponent.
        sets: how many sets there are, for compiled code, where no shape may depend on numbers; by default as many as
            ``index`` names. A set without rows gives 0.

    ``module(x, index)``: x (N, dim), index int64 (N,), the set of each row, from 0 -> (sets, dim).

    Learning to Pool in Graph Neural Networks for Extrapolation (Ko et al., 2021), arXiv 2106.06210: only its abstract
    could be read, and the equations are this library's.
    """

    def __init__(self, dim: int, *, eps: float = 1e-6, sets: int | None = None):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.eps = check.eps(self, eps)
        self.sets = None if sets is None else check.size(self, "sets", sets)
        self.p = nn.Parameter(torch.full((2,), math.log(math.e - 1)))  # softplus of it is 1
        self.q = nn.Parameter(torch.zeros(2))

    def exponents(self) -> Tensor:
        """The exponents of the two halves."""
        p = F.softplus(accurate(self.p))
        return torch.stack([p[0], -p[1]])

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        """Pool the rows of ``x`` by ``index``."""
        check.values(self, "x", x, (None, self.dim), x)
        check.index(self, "index", index, x.shape[:1], self.sets, x)
        sets = self.sets or (int(index.max()) + 1 if len(index) else 0)
        exact = accurate(x)
        p, q = (self._each(value.to(exact.dtype)) for value in (self.exponents(), accurate(self.q)))
        rows = sum_by(torch.ones_like(exact[:, :1]), index, sets)
        mask = rows > 0
        logs = _log_sum_exp(p * (exact.abs() + self.eps).log(), index, sets)
        y = (torch.where(mask, logs, 0) / p - q * rows.clamp(min=1).log()).exp()
        return torch.where(mask, y, 0).to(x.dtype)

    def _each(self, halves: Tensor) -> Tensor:
        """Lay two numbers along the features."""
        first = self.dim // 2
        return torch.cat([halves[:1].expand(first), halves[1:].expand(self.dim - first)])


def _log_sum_exp(x: Tensor, index: Tensor, count: int) -> Tensor:
    """Log of the sum of the exponentials of each set's rows; the largest is taken out first."""
    where = index.unsqueeze(1).expand(-1, x.shape[1])
    least = x.new_full((count, x.shape[1]), -torch.inf)
    most = least.scatter_reduce(0, where, x.detach(), "amax")
    most = torch.where(most.isfinite(), most, 0)
    total = sum_by((x - most[index]).exp(), index, count)
    return torch.where(total > 0, total, 1).log() + most
