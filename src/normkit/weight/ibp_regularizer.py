"""The IBP regularizer: interval bounds that stay tight, and ReLUs of which some are on and some off."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.statistics import accurate

TERMS = ("relu", "tightness", "std")
TINY = 1e-12


@method(
    "ibp-regularizer",
    paper="Fast Certified Robust Training with Short Warmup (Shi et al., 2021), arXiv 2103.17268",
    shape="N C",
    over="C",
    inputs={"input_upper": "N C", "lower1": "N K", "upper1": "N K"},
)
class IBPRegularizer(Loss):
    """Penalize bounds that grow from the input to a ReLU, and layers whose ReLUs are nearly all on or nearly all off.

    For certified training, during its short warm-up.

    Let c and d be the centres and radii of the bounds of a ReLU's input, and r0 the mean radius of the input. With A
    where lower > 0, I where upper < 0, and fold(z) = min(z, 1 / z),

        tightness   relu(tol - r0 / mean(d)) / tol
        relu        relu(tol - fold(mean(c A) / -mean(c I))) / tol
                  + relu(tol - fold(sum((c - mean c)^2 A) / sum((c - mean c)^2 I))) / tol
        std         relu(tol - deviation(c)) / tol

    with n - 1 in the deviation, and the loss is the sum of the terms' means over layers. A layer without an inactive
    ReLU adds nothing to ``relu``. In training multiply it by 0.5 (1 - eps / eps_max), eps the radius now.

    Args:
        terms: which ones, in any order; ``"std"`` is not part of the authors' recipe.
        tol: from which value on nothing is penalized.

    ``loss(input_lower, input_upper, lower1, upper1, lower2, upper2, ...)``, each pair of one shape.

    Fast Certified Robust Training with Short Warmup (Shi, Wang, Zhang, Yi, Hsieh, 2021), arXiv 2103.17268.
    """

    def __init__(self, *, terms: Sequence[str] = ("relu", "tightness"), tol: float = 0.5):
        super().__init__()
        if isinstance(terms, str) or not isinstance(terms, Collection) or not terms:
            raise ValueError(f"{type(self).__name__}: terms must be some of {', '.join(TERMS)}, not {terms!r}")
        self.terms = [check.choice(self, "terms", term, TERMS) for term in terms]
        self.tol = check.number(self, "tol", tol, 0.0, open_low=True)

    def forward(self, input_lower: Tensor, input_upper: Tensor, *bounds: Tensor) -> Tensor:
        """Return the loss, a single number."""
        pairs = self._pairs(input_lower, input_upper, bounds)
        (lower, upper), *layers = [(accurate(low), accurate(high)) for low, high in pairs]
        radius = ((upper - lower) / 2).mean()
        total = sum(getattr(self, f"_{term}")(low, high, radius) for term in self.terms for low, high in layers)
        return (total / len(layers)).to(input_lower.dtype)

    def _pairs(self, lower: Tensor, upper: Tensor, bounds: tuple[Tensor, ...]) -> list[tuple[Tensor, Tensor]]:
        if not bounds or len(bounds) % 2:
            raise ValueError(f"{type(self).__name__}: bounds must be pairs of lower and upper, not {len(bounds)}")
        pairs = [(lower, upper), *zip(bounds[::2], bounds[1::2], strict=True)]
        for layer, (low, high) in enumerate(pairs):
            names = [f"{end}{layer} of bounds" if layer else f"input_{end}" for end in ("lower", "upper")]
            for name, bound in zip(names, (low, high), strict=True):
                check.floating(self, bound, name)
                check.values(self, name, bound, bound.shape, lower)
            if low.shape != high.shape:
                raise ValueError(
                    f"{type(self).__name__}: {names[0]} and {names[1]} must have one shape, not {tuple(low.shape)} and "
                    f"{tuple(high.shape)}"
                )
        return pairs

    def _tightness(self, lower: Tensor, upper: Tensor, radius: Tensor) -> Tensor:
        return torch.relu(self.tol - radius / ((upper - lower) / 2).mean().clamp(min=TINY)) / self.tol

    def _std(self, lower: Tensor, upper: Tensor, radius: Tensor) -> Tensor:
        return torch.relu(self.tol - ((lower + upper) / 2).std()) / self.tol

    def _relu(self, lower: Tensor, upper: Tensor, radius: Tensor) -> Tensor:
        centre = (lower + upper) / 2
        on, off = (lower > 0).to(centre.dtype), (upper < 0).to(centre.dtype)
        spread = (centre - centre.mean()).square()
        means, known = _fold((centre * on).mean(), -(centre * off).mean())
        spreads, defined = _fold((spread * on).sum(), (spread * off).sum())
        term = (torch.relu(self.tol - means) + torch.relu(self.tol - spreads)) / self.tol
        return torch.where(off.any() & known & defined & term.isfinite(), term, 0)


def _fold(above: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smaller of a quotient and its inverse, and whether it is a number; of z / 0 it is 0."""
    z = above / torch.where(below > 0, below, 1)
    folded = torch.minimum(z, 1 / z.clamp(min=TINY))
    return torch.where(below > 0, folded, 0), (below > 0) | (above > 0)
