"""Digits under noise that a network with batch norms did not see in training."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normkit as nk
from normkit.claims.images import SPLIT, digits
from normkit.claims.kinds import Measured, above
from normkit.claims.training import Bed, started
from normkit.lab.plan.data import chances

HIDDEN, STEPS, BATCH, RATE, NOISE = 48, 100, 64, 1e-2, 0.8
INNER = (0.1, 0.3, 0.5, 0.7)


@functools.cache
def trained(seed: int, twin: bool = False) -> tuple[nn.Module, Tensor, Tensor]:
    """A network whose norms mix moments of training and test, and digits that were held out."""
    (x, labels), chance = digits(), torch.Generator().manual_seed(seed)
    x, rows = (x.flatten(1) - x.mean()) / x.std(), torch.randperm(len(x), generator=chance)
    layers = [nn.Linear(64, HIDDEN), nk.AlphaBatchNorm(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN),
              nk.AlphaBatchNorm(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10)]  # fmt: skip
    with chances(seed), torch.enable_grad():
        model = started(nn.Sequential(*layers), seed, twin)
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        for step in range(STEPS):
            optimizer.param_groups[0]["lr"] = RATE * (1 - step / STEPS)
            which = rows[torch.randint(SPLIT, (BATCH,), generator=chance)]
            optimizer.zero_grad()
            F.cross_entropy(model(x[which]), labels[which]).backward()
            optimizer.step()
    return model.eval(), x[rows[SPLIT:]], labels[rows[SPLIT:]]


def right(seed: int, weight: float, noise: float, twin: bool = False) -> Tensor:
    """Which held-out digits are right at a weight of the test batches' moments."""
    model, x, labels = trained(seed, twin)
    x = x + noise * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    for layer in model:  # type: ignore[attr-defined]
        if isinstance(layer, nk.AlphaBatchNorm):
            layer.target_weight = weight
    with torch.no_grad():
        return torch.cat([model(part) for part in x.split(BATCH)]).argmax(1) == labels


def mixed(seed: int, noise: float = NOISE) -> float:
    """By how many points the best mixture of one half of the digits is ahead of both ends, on the other half."""
    hits = {weight: right(seed, weight, noise).double() for weight in (0.0, *INNER, 1.0)}
    best = max(INNER, key=lambda weight: hits[weight][::2].mean().item())
    mean = {weight: 100 * own[1::2].mean().item() for weight, own in hits.items()}
    return mean[best] - max(mean[0.0], mean[1.0])


def cost(seed: int, noise: float = NOISE, twin: bool = False) -> float:
    """The points that noise costs, with the moments of training."""
    clean, noisy = right(seed, 0.0, 0.0).double(), right(seed, 0.0, noise, twin).double()
    return 100 * (clean.mean() - noisy.mean()).item()


NOISY = Bed(
    "noisy-digits",
    "Two hidden layers of 48 with batch norms that learn 1,000 of scikit-learn's digits, at unit variance, in 100 "
    "steps of Adam at 0.01, whose rate falls to 0; the accuracy is that on the other 797 in batches of 64, with normal "
    "noise of deviation 0.8.",
    (
        Measured(
            "noise",
            says="The noise costs 5 points or more, with the moments of the training.",
            measure=cost,
            wanted=above(5.0),
            control=functools.partial(cost, noise=0.0, twin=True),
            against="its twin without noise",
            number="points",
            draws=8,
            rule="mean",
            null=0.0,
        ),
    ),
    "Images, corruptions of other kinds, and small test batches.",
)
