"""Generalized Gaussian initialization: weights of a sharper peak and heavier tails than normal ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate

RANGE = (0.15, 20.0)  # of the exponents that a fit looks at


@method(
    "generalized-gaussian-init",
    paper="It Takes a Good Model to Train a Good Model: Generalized Gaussian Priors for Optimized LLMs (Wu et al., "
    "2025), arXiv 2506.00486",
    evidence="equations",
    shape="C I : unit",
    over="",
    inputs={"sign": "C I"},
    example={"shape": lambda rows: (rows, 5)},
    provenance="the textbook distribution; the authors' exponents and scales could not be had",
    exempt={"empty": "a weight has no samples"},
)
class GeneralizedGaussianInit(Method):
    """Turn gamma draws and signs into weights of density exp(-(|w| / a)^nu).

    For initializing language models, whose trained weights have nu below 2. Which nu suits which layer is not published
    in what could be read, so compare with nu = 2, the usual start.

    With nu = 2 it is the normal distribution, with 1 Laplace's; the variance is std^2 whatever nu is:

        a = std sqrt(Gamma(1/nu) / Gamma(3/nu)),    weight = sign a t^(1/nu),    t drawn from Gamma(1/nu, 1)

    Args:
        shape: of the weight.
        shape_parameter: nu.
        std: of the weight; None: sqrt(1 / fan_in), fan_in the product of all sizes but the first.

    ``init(gamma, sign)`` returns the weight of given draws; :meth:`init_` fills one in place; :meth:`fit` tells nu and
    a of a weight.

    It Takes a Good Model to Train a Good Model (Wu et al., 2025), arXiv 2506.00486. The recipe of its authors, which
    nu for which layer, is not confirmed, and their DeepShape is left out.
    """

    def __init__(self, shape: Sequence[int], *, shape_parameter: float = 1.0, std: float | None = None):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape)
        self.shape_parameter = nu = check.number(self, "shape_parameter", shape_parameter, 0.05, 1e3)
        self.std = None if std is None else check.number(self, "std", std, 0.0)
        deviation = 1 / math.sqrt(math.prod(self.shape[1:])) if std is None else std
        self.scale = deviation * math.exp((math.lgamma(1 / nu) - math.lgamma(3 / nu)) / 2)

    def forward(self, gamma: Tensor, sign: Tensor) -> Tensor:
        """Return the weight of draws ``gamma`` from Gamma(1/nu, 1), with the signs ``sign``, 1 or -1."""
        check.values(self, "gamma", gamma, self.shape, gamma)
        check.values(self, "sign", sign, self.shape, gamma)
        drawn = self.scale * accurate(gamma) ** (1 / self.shape_parameter)
        return (accurate(sign) * drawn).to(gamma.dtype)

    @torch.no_grad()
    def init_(self, tensor: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Fill a weight in place."""
        check.values(self, "tensor", tensor, self.shape, tensor)
        rate = torch.full(self.shape, 1 / self.shape_parameter, dtype=torch.float64, device=tensor.device)
        gamma = torch._standard_gamma(rate, generator=generator)
        sign = 2 * torch.randint(0, 2, self.shape, generator=generator, device=tensor.device) - 1
        return tensor.copy_(self(gamma, sign.to(gamma.dtype)))

    @torch.no_grad()
    def fit(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return nu, in [0.15, 20], and a of ``weight``, from its mean square and mean size."""
        check.floating(self, weight, "weight")
        wide = weight.double()
        square, size = float(wide.square().mean()), float(wide.abs().mean())
        if not 0 < size < math.inf:
            raise ValueError(f"{type(self).__name__}: weight must be finite and not all 0, but its mean size is {size}")
        nu = _exponent(math.log(square / size**2))
        scale = math.sqrt(square * math.exp(math.lgamma(1 / nu) - math.lgamma(3 / nu)))
        return wide.new_tensor(nu), wide.new_tensor(scale)


def _exponent(goal: float) -> float:
    """Find nu by halving: the logarithm of the ratio of moments falls with it."""
    low, high = RANGE
    for _ in range(100):
        nu = (low + high) / 2
        ratio = math.lgamma(1 / nu) + math.lgamma(3 / nu) - 2 * math.lgamma(2 / nu)
        low, high = (nu, high) if ratio > goal else (low, nu)
    return (low + high) / 2
