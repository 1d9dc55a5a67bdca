"""The base of a flow whose margins have tails of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import reals

LEAST = 1e-3  # degree of freedom


@method(
    "tail-adaptive-base",
    paper="Marginal Tail-Adaptive Normalizing Flows (Laszkiewicz et al., 2022), arXiv 2206.10311",
    shape="N C",
    example={"tail_index": lambda features: [0.0] * (features - 2) + [2.5, 4.0]},
)
class TailAdaptiveBase(Method):
    """Return the log density of independent margins, light ones Gaussian and heavy ones Student's t.

    For flows of data with heavy tails: a Gaussian base cannot become heavy by a flow that is Lipschitz. ``tail-index``
    estimates which margins are heavy, and ``tail-lu`` mixes coordinates without spoiling that. For light tails a
    Gaussian base is enough.

    Light coordinates come first. With v the degree of freedom of a heavy one,

        log t(x) = log G((v+1)/2) - log G(v/2) - log(v pi) / 2 - (v+1)/2 log(1 + x^2 / v)

    Args:
        dim: D.
        tail_index: of each coordinate, D numbers, 0 for Gaussian; those come first. See :func:`tail_index`.

    ``base(x)`` and ``base.log_prob(x)``: (N, D) to (N,); ``base.sample(n)``. State: ``df``, learned, one for each heavy
    coordinate; at least 1e-3 is used.

    Marginal Tail-Adaptive Normalizing Flows (Laszkiewicz et al., 2022), arXiv 2206.10311.
    """

    def __init__(self, dim: int, *, tail_index: Sequence[float]):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        if not isinstance(tail_index, list | tuple) or len(tail_index) != dim:
            raise ValueError(f"{type(self).__name__}: tail_index must be {dim} numbers, dim=..., not {tail_index!r}")
        heavy = [v for v in (check.number(self, "tail_index", value, 0.0) for value in tail_index) if v > 0]
        self.num_light = dim - len(heavy)
        if any(tail_index[: self.num_light]):
            raise ValueError(f"{type(self).__name__}: tail_index must have its zeros first, not {tail_index!r}")
        self.df = nn.Parameter(torch.tensor(heavy))

    def forward(self, x: Tensor) -> Tensor:
        """Return the log density of each sample (N, D)."""
        light, heavy = reals(self, "x", x, (None, self.dim)).tensor_split([self.num_light], 1)
        v = self._df(light.dtype)
        scale = torch.lgamma((v + 1) / 2) - torch.lgamma(v / 2) - (v * math.pi).log() / 2
        tails = scale - (v + 1) / 2 * torch.log1p(heavy.square() / v)
        gaussian = -(light.square() + math.log(2 * math.pi)) / 2
        return (gaussian.sum(1) + tails.sum(1)).to(x.dtype)

    def log_prob(self, x: Tensor) -> Tensor:
        """Return the log density of each sample (N, D)."""
        return self(x)

    def sample(self, n: int) -> Tensor:
        """Draw n samples, (n, D)."""
        v = self._df(torch.float64 if self.df.dtype == torch.float64 else torch.float32)
        light = torch.randn(n, self.num_light, dtype=v.dtype, device=v.device)
        heavy = torch.distributions.StudentT(v, validate_args=False).rsample((n,))
        return torch.cat([light, heavy], 1).to(self.df.dtype)

    def _df(self, dtype: torch.dtype) -> Tensor:
        return self.df.to(dtype).clamp(min=LEAST)
