"""What is claimed of the variance of normalizer-free networks at their start."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn
from normkit.weight.nf_block import nf_betas

DEPTHS, CHANNELS, ALPHA = (12, 12), 64, 0.2


def variances(known):
    """The mean variance of channels behind each block, where branches are not shut."""
    x, outputs = randn(8, CHANNELS, 16, 16), []
    for betas in nf_betas(DEPTHS, ALPHA):
        for block, beta in enumerate(betas):
            width = x.shape[1] if block or not outputs else 2 * x.shape[1]
            stride = 1 if width == x.shape[1] else 2
            module = nk.NFBlock(
                x.shape[1], out_channels=width, stride=stride, alpha=ALPHA, beta=beta if known else 1.0
            ).double()
            module.skip_gain.data.fill_(1.0)
            with torch.no_grad():
                x = module(x)
            outputs.append(x.var((0, 2, 3)).mean())
    return torch.stack(outputs)


def predicted():
    """What nf_betas expects behind each block."""
    squares = []
    for depth in DEPTHS:
        std = 1.0
        for block in range(depth):
            std = ((1.0 if block == 0 and squares else std**2) + ALPHA**2) ** 0.5
            squares.append(std**2)
    return torch.tensor(squares, dtype=torch.float64)


def error(seed, known=True, nets=10):
    """The largest relative error over blocks, of the mean of ten networks."""
    return (torch.stack([variances(known) for _ in range(nets)]).mean(0) / predicted() - 1).abs().max()


CLAIMS = [
    Measured(
        "saw-tooth",
        says="At the start the variance behind each of 24 blocks is the predicted one, which falls at each stage.",
        measure=error,
        wanted=below(0.1),
        control=partial(error, known=False),
        against="beta = 1 everywhere",
        number="largest relative error",
        draws=1,
    )
]
