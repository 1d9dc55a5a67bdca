"""What weight compander claims of the weights' distribution."""

from functools import partial

import torch
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.weight._digits import TRAINING, digits, passed, started


def kurtosis(weights):
    """The mean excess kurtosis of layers."""
    units = [(weight - weight.mean()) / weight.std() for weight in weights]
    return sum(unit.pow(4).mean() - 3 for unit in units) / len(units)


def effective(start, x, labels, a, steps=100):
    """The weights of a network that was trained through companders of the range a, with weight decay."""
    companders = [nk.WeightCompander(weight.shape, a=a, b=a, learnable=False).double() for weight in start]
    raw = [module.reset(weight).requires_grad_() for module, weight in zip(companders, start, strict=True)]
    optimizer = torch.optim.AdamW(raw, lr=3e-3, weight_decay=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        weights = [module(weight) for module, weight in zip(companders, raw, strict=True)]
        F.cross_entropy(passed(weights, x)[-1], labels).backward()
        optimizer.step()
    return [module(weight).detach() for module, weight in zip(companders, raw, strict=True)]


def change(seed, a=0.4):
    """The kurtosis with companders less that without."""
    x, labels = digits()
    x, labels, start = x[:TRAINING], labels[:TRAINING], [weight.clamp(-0.5, 0.5) for weight in started((64, 64, 10))]
    return kurtosis(effective(start, x, labels, a)) - kurtosis(effective(start, x, labels, 1e6))


CLAIMS = [
    Measured(
        "kurtosis",
        says="The kurtosis of the weights that act is lower after training through it, beyond rounding.",
        measure=change,
        wanted=below(-1e-6),
        control=partial(change, a=1e5),
        against="a compander that is straight",
        number="change of the kurtosis",
        draws=8,
    )
]
