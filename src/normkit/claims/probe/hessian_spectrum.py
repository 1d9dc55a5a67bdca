"""What is claimed of curvature by Lanczos."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn


def error(seed, steps=100):
    """The relative error of the top eigenvalue of a network's Hessian, against the exact one."""
    x, y = randn(64, 10), randn(64, 5)

    def loss(flat):
        first, second = flat[:300].view(30, 10), flat[300:450].view(5, 30)
        return ((x @ first.mT).tanh() @ second.mT - y).square().mean()

    hessian = torch.autograd.functional.hessian(loss, 0.5 * randn(450))
    exact = torch.linalg.eigvalsh(hessian)[-1]
    start = torch.randint(0, 2, (450,)).double() * 2 - 1
    return (nk.hessian_spectrum(hessian, start, steps=steps, window=steps)[0][-1] / exact - 1).abs()


CLAIMS = [
    Measured(
        "top-eigenvalue",
        says="The top eigenvalue agrees with that of the exact Hessian.",
        measure=error,
        wanted=below(1e-3),
        control=partial(error, steps=2),
        against="two steps",
        number="relative error",
        draws=5,
    )
]
