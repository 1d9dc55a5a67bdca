"""Normal laws and Student's, fitted to few or to dependent data: how far a fit is from the truth is exact."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn
from normkit.claims.training import Bed

MEAN, SCALE, FAMILY, SINGLE = 1.0, 2.0, 20, 20  # of the truth; how many samples are of one family, and of none
UNITS, TREATMENT = 2000, 1.5


def fitted(loss: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
    """Bring parameters to the least loss."""
    optimizer = torch.optim.LBFGS(parameters, max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)


def divergence(mean: float, scale: float, other_mean: float, other_scale: float) -> float:
    """The KL divergence of a normal law from another."""
    ratio = (scale**2 + (mean - other_mean) ** 2) / (2 * other_scale**2)
    return math.log(other_scale / scale) + ratio - 0.5


def free(*values: float) -> list[Tensor]:
    """Numbers to fit."""
    return [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values]


def related(correlation: float) -> Tensor:
    """How samples are correlated, half of which are of one family."""
    matrix = torch.eye(FAMILY + SINGLE, dtype=torch.float64)
    matrix[:FAMILY, :FAMILY] = correlation + (1 - correlation) * matrix[:FAMILY, :FAMILY]
    return matrix


def error(x: Tensor, relatedness: Tensor | None = None) -> float:
    """The divergence of the truth from the law of the largest likelihood, of samples that are related or not."""
    mean, log_scale = free(0.0, 0.0)
    density = nk.DependentDataLikelihood(1).double() if relatedness is not None else None

    def loss() -> Tensor:
        z = (x - mean) / log_scale.exp()
        if density is None or relatedness is None:
            return (z.square() / 2 + log_scale).mean()
        return log_scale - density(z, relatedness) / len(z)

    fitted(loss, [mean, log_scale, *(density.parameters() if density else ())])
    return divergence(MEAN, SCALE, mean.item(), log_scale.exp().item())


def gained(seed: int, correlation: float = 0.9) -> float:
    """The nats that the likelihood of related samples brings."""
    x = MEAN + SCALE * torch.linalg.cholesky(related(correlation)) @ randn(FAMILY + SINGLE, 1)
    return error(x) - error(x, related(0.9))


def few(seed: int, count: int = 200) -> float:
    """The nats that more samples bring over 20."""
    return error(MEAN + SCALE * randn(20, 1)) - error(MEAN + SCALE * randn(count, 1))


def outcome(density_right: bool, chance_right: bool, corrected: bool) -> float:
    """The divergence of the outcome's law under treatment from a fit to what a first model says of it."""
    x = randn(UNITS)
    chance = torch.sigmoid(TREATMENT * x)
    treated, y = torch.rand(UNITS).double() < chance, x + randn(UNITS)
    first = x if density_right else torch.ones_like(x)
    propensity = chance if chance_right else 1 - chance
    (mean, log_scale), method = free(0.5, 0.0), nk.InterventionalFlowLoss()

    def loss() -> Tensor:
        square = (2 * log_scale).exp()
        base = log_scale + math.log(2 * math.pi) / 2
        log_q, entropy = -base - (y - mean).square() / (2 * square), base + ((first - mean).square() + 1) / (2 * square)
        if corrected:
            return method(log_q, entropy, entropy.mean(), treated, propensity)
        return entropy.mean() if chance_right else -(treated / propensity * log_q).sum() / (treated / propensity).sum()

    fitted(loss, [mean, log_scale])
    return divergence(0.0, 2**0.5, mean.item(), log_scale.exp().item())


def mended(seed: int, density_right: bool, chance_right: bool) -> float:
    """The divergence with the correction as a share of that without."""
    own = outcome(density_right, chance_right, True)
    torch.manual_seed(seed)
    return own / outcome(density_right, chance_right if density_right or chance_right else True, False)


def quantile_error(seed: int, heavy: bool = True) -> float:
    """The error of the 99.9 % quantile with Student's law as a share of that with a normal one."""
    from scipy import stats

    law = stats.t(2.0) if heavy else stats.norm()
    x = torch.from_numpy(law.rvs(1000, random_state=seed))
    (log_scale,), base = free(0.0), nk.TailAdaptiveBase(1, tail_index=[3.0]).double()
    fitted(lambda: log_scale - base(x[:, None] / log_scale.exp()).mean(), [log_scale, *base.parameters()])
    quantiles = stats.t(base.df.item()).ppf(0.999) * log_scale.exp().item(), stats.norm.ppf(0.999) * x.std().item()
    one, other = (abs(quantile - law.ppf(0.999)) for quantile in quantiles)
    return float(one / other)


LAWS = Bed(
    "laws",
    "One-dimensional laws of the largest likelihood: of 40 samples, 20 of which are one family; of an outcome under "
    "treatment, from 2,000 units whose treatment depends on what it depends on; of 1,000 samples with heavy tails. The "
    "divergence of the truth from the fit is exact.",
    (
        Measured(
            "more-samples",
            says="200 independent samples bring 0.02 nats over 20.",
            measure=few,
            wanted=above(0.02),
            control=functools.partial(few, count=20),
            against="20 others",
            number="nats",
            draws=24,
            rule="mean",
            null=0.0,
        ),
    ),
    "Flows of many layers, and many dimensions.",
)
