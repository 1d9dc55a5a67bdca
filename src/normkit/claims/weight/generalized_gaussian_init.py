"""What is claimed of a start with heavier tails than a normal one."""

from functools import partial

import torch
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Trained, above
from normkit.claims.trained import TWIN, case, passed, train


def loss(seed, shape, twin=False):
    """The held-out loss after training from a start of that shape, and of He's variance."""
    own = case(seed, steps=0)
    torch.manual_seed(seed + TWIN * (1 + twin))
    start = []
    for weight in own.weights:
        raw = torch.empty_like(weight)
        nk.GeneralizedGaussianInit(raw.shape, shape_parameter=shape, std=(2 / raw.shape[1]) ** 0.5).init_(raw)
        start.append(raw)
    return F.cross_entropy(passed(train(start, own.x, own.labels), own.held)[-1], own.right).item()


def lower(seed, shape=1.0, twin=False):
    """By how much the loss is lower than from a normal start, in percent."""
    other = loss(seed, 2.0)
    return 100 * (other - loss(seed, shape, twin)) / other


CLAIMS = [
    Trained(
        "than-normal",
        says="From Laplace's law the loss comes out 1 % lower than from a normal one, or more.",
        measure=lower,
        wanted=above(1.0),
        control=partial(lower, shape=2.0, twin=True),
        against="another normal start",
        number="percent",
        bed="trained-digits",
    )
]
