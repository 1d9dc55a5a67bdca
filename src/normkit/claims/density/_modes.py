"""Two Gaussian modes, and an affine flow that is wrong in every direction."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

import normkit as nk
from normkit.claims.kinds import Measured, above, below
from normkit.claims.measures import randn
from normkit.density._inputs import gaussian

CHAINS, STEPS, APART, SHARE = 1000, 150, 5.0, 0.7  # the second mode's share
WRONG = 1.3  # by how much the flow is too wide in each direction


def log_target(x: Tensor) -> Tensor:
    """The log density of modes at -5 and 5 of the first coordinate."""
    shift = torch.zeros(x.shape[-1], dtype=torch.float64)
    shift[0] = APART
    first, second = gaussian(x, -shift, 1.0), gaussian(x, shift, 1.0)
    return torch.logaddexp(first + math.log(1 - SHARE), second + math.log(SHARE))


def scales(dim: int) -> Tensor:
    """The flow's deviation in each direction: it spans both modes."""
    deviations = torch.full((dim,), WRONG, dtype=torch.float64)
    deviations[0] *= (1 + APART**2) ** 0.5
    return deviations


def proposals(shape: tuple[int, ...], perfect: bool) -> Tensor:
    """Samples of the flow, or of the target in its place."""
    x = randn(*shape)
    if perfect:
        x[..., 0] += APART * (2 * (torch.rand(shape[:-1]) < SHARE).double() - 1)
        return x
    return x * scales(shape[-1])


def log_proposal(x: Tensor, perfect: bool) -> Tensor:
    """The log density of the flow."""
    if perfect:
        return log_target(x)
    own = scales(x.shape[-1])
    return gaussian(x / own, 0.0, 1.0) - own.log().sum()


def start(dim: int, share: float) -> Tensor:
    """Chains at the modes' centres, a share of them at the second."""
    x = torch.zeros(CHAINS, dim, dtype=torch.float64)
    x[:, 0] = APART * torch.where(torch.arange(CHAINS) < share * CHAINS, 1.0, -1.0)
    return x


def jump(dim: int, share: float, perfect: bool = False) -> Tensor:
    """Chains after steps of imh-step."""
    x = start(dim, share)
    target, proposal = log_target(x), log_proposal(x, perfect)
    for _ in range(STEPS):
        new = proposals((CHAINS, dim), perfect)
        x, target, proposal, _ = nk.imh_step(
            x, target, proposal, new, log_target(new), log_proposal(new, perfect), torch.rand(CHAINS).double()
        )
    return x


def choose(dim: int, share: float, perfect: bool = False, particles: int = 8) -> Tensor:
    """Chains after steps of isir-step."""
    x = start(dim, share)
    for _ in range(STEPS // particles):
        new = torch.cat([x[:, None], proposals((CHAINS, particles - 1, dim), perfect)], 1)
        x = nk.isir_step(new, log_target(new), log_proposal(new, perfect), torch.rand(CHAINS).double()).x
    return x


def walk(dim: int, share: float) -> Tensor:
    """Chains after steps of mala among the latents of neutra."""
    module = nk.NeuTra(dim, energy=lambda x: -log_target(x)).double()
    module.matrix.data = torch.diag(scales(dim))
    module.requires_grad_(False)
    z = nk.mala(
        start(dim, share) / scales(dim),
        randn(STEPS, CHAINS, dim),
        torch.rand(STEPS, CHAINS).double(),
        energy=lambda z: -module(z).log_prob,
        step_size=0.01,
        steps=STEPS,
    ).x
    return module(z).x


def plain(dim: int, share: float) -> Tensor:
    """Chains after steps of mala on the target itself."""
    draws = randn(STEPS, CHAINS, dim), torch.rand(STEPS, CHAINS).double()
    return nk.mala(start(dim, share), *draws, energy=lambda x: -log_target(x), step_size=0.2, steps=STEPS).x


def share_error(sample: Callable[[int, float], Tensor], dims: tuple[int, ...], begin: float, end: float) -> float:
    """How far the second mode's share is from ``end`` at most, of chains a share of which began there."""
    return max(abs((sample(dim, begin)[:, 0] > 0).double().mean().item() - end) for dim in dims)


def of_proposals(sample: Callable[..., Tensor]) -> list[Measured]:
    """What is claimed of steps to a flow's samples, of chains that all began in one mode."""

    def error(seed, sample=sample, dims=(2, 8)):
        return share_error(sample, dims, 0.0, SHARE)

    return [
        Measured(
            "modes",
            says="An imperfect flow's samples put both modes right, within 5 points, in 2 and 8 dimensions.",
            measure=error,
            wanted=below(0.05),
            control=partial(error, sample=plain),
            against="a local walk alone",
            number="error of a mode's share",
            draws=2,
        ),
        Measured(
            "dimension",
            says="In 32 dimensions they do not.",
            measure=partial(error, dims=(32,)),
            wanted=above(0.05),
            control=partial(error, sample=partial(sample, perfect=True), dims=(32,)),
            against="a perfect flow",
            number="error of a mode's share",
            draws=2,
        ),
    ]
