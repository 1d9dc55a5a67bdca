"""What is claimed of weights for interval bounds."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

WIDTH = 512


def kaiming(noise):
    """He's start."""
    return noise * (2 / WIDTH) ** 0.5


def growth_error(seed, start=nk.ibp_init):
    """How far the mean width of bounds behind a layer and a ReLU is from that before it, over 6 layers."""
    x = randn(16, WIDTH)
    low, high, worst = x - 0.1, x + 0.1, 0.0
    for _ in range(6):
        weight, before = start(randn(WIDTH, WIDTH)), (high - low).mean()
        middle, reach = (low + high) / 2 @ weight.mT, (high - low) / 2 @ weight.mT.abs()
        low, high = torch.relu(middle - reach), torch.relu(middle + reach)
        worst = max(worst, ((high - low).mean() / before - 1).abs().item())
    return worst


CLAIMS = [
    Measured(
        "constant-width",
        says="The mean width of interval bounds is constant through depth.",
        measure=growth_error,
        wanted=below(0.1),
        control=partial(growth_error, start=kaiming),
        against="Kaiming's start",
        number="relative change a layer",
    )
]
