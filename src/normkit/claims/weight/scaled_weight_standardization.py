"""What is claimed of signals through networks without norms."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

WIDTH, GAMMA = 512, (2 / (1 - 1 / torch.pi)) ** 0.5  # of a ReLU whose result shall have a variance of 1


def off_by(seed, standardized=True):
    """How far channels are, in 30 layers, from a variance of 1 and a mean of 0: the larger share of what is allowed."""
    x, worst = randn(256, WIDTH), 0.0
    standard = nk.ScaledWeightStandardization((WIDTH, WIDTH))
    with torch.no_grad():
        for _ in range(30):
            raw = randn(WIDTH, WIDTH) * ((1 if standardized else 2) / WIDTH) ** 0.5
            x = (GAMMA * x.relu()) @ standard(raw).mT if standardized else x.relu() @ raw.mT
            variance, mean = x.var(0).mean(), x.mean(0).square().mean()
            worst = max(worst, (variance.log() / torch.tensor(1.25).log()).abs().item(), mean.item() / 0.05)
    return worst


CLAIMS = [
    Measured(
        "propagation",
        says="Through 30 layers the variance stays within 0.8 and 1.25, and squared channel means below 0.05.",
        measure=off_by,
        wanted=below(1.0),
        control=partial(off_by, standardized=False),
        against="He's weights",
        number="share of what is allowed",
        draws=5,
    )
]
