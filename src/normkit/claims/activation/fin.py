"""What CoMoGAN claims of functional instance normalization."""

import math
from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity, Measured, below
from normkit.claims.measures import gap, randn, randomized


def turned(seed, by=2 * math.pi):
    """What changes when the angle grows."""
    norm, x, phi = randomized(nk.FIN(4)), randn(6, 4, 5, 5), randn(6)
    return gap(norm(x, phi), norm(x, phi + by))


def family_error(seed, cyclic=True):
    """How far a fitted layer's gains and shifts are from a cyclic family, at angles all around."""
    true, fitted, x = randomized(nk.FIN(4)), nk.FIN(4).double(), randn(1, 4, 8, 8)
    phi = torch.linspace(0, 2 * math.pi, 33, dtype=torch.float64)[:-1]
    shape = phi.shape[0]
    angle = phi if cyclic else phi / (2 * math.pi)
    target = true(x.expand(shape, -1, -1, -1), phi).detach()
    optimizer = torch.optim.LBFGS(fitted.parameters(), max_iter=100, tolerance_grad=1e-12, tolerance_change=1e-16)

    def closure():
        optimizer.zero_grad()
        loss = (fitted(x.expand(shape, -1, -1, -1), angle) - target).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return gap(fitted(x.expand(shape, -1, -1, -1), angle), target)


CLAIMS = [
    Identity(
        "period",
        says="The output is periodic in the angle, with a period of 2 pi.",
        measure=turned,
        bound=1e-12,
        breaks=partial(turned, by=math.pi),
        against="half a turn",
    ),
    Measured(
        "recovers",
        says="It recovers a cyclic family of gains and shifts.",
        measure=family_error,
        wanted=below(1e-3),
        control=partial(family_error, cyclic=False),
        against="a condition that does not close the circle",
    ),
]
