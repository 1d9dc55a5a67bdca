"""What LDReg claims of the local dimension."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn

POINTS, SPACE, K = 100, 10, 20


def rise(seed, sign=1.0):
    """By what factor the mean local dimension of points near a sheet rises in 100 steps of Adam."""
    x = randn(POINTS, 2) @ torch.nn.functional.normalize(randn(2, SPACE)) + 0.02 * randn(POINTS, SPACE)
    x, loss = x.requires_grad_(), nk.LDReg(K)
    before = dimension(x)
    optimizer = torch.optim.Adam([x], lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        (sign * loss(x)).backward()
        optimizer.step()
    return dimension(x) / before


def dimension(x):
    """The mean estimate."""
    return nk.local_dimension(x.detach(), x.detach(), k=K).mean()


CLAIMS = [
    Measured(
        "raises",
        says="It raises the local dimension of points near a sheet of two dimensions by a half or more.",
        measure=rise,
        wanted=above(1.5),
        control=partial(rise, sign=-1.0),
        against="the loss with the other sign",
        number="dimension after over before",
        draws=5,
    )
]
