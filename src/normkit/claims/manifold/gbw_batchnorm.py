"""What is claimed of the Bures-Wasserstein metric on ill-conditioned matrices."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import gradient, randn

N = 8


def matrices(condition):
    """Positive definite matrices of one condition number, turned at random."""
    turned = torch.linalg.qr(randn(32, N, N)).Q
    values = condition ** -torch.linspace(0, 1, N, dtype=torch.float64)
    return turned * values @ turned.mT


def share(seed, condition=1e5):
    """The length of the gradient, as a share of that under the affine-invariant metric."""
    x = matrices(condition)
    own, other = (gradient(module.double(), x).norm() for module in (nk.GBWBatchNorm(N), nk.RiemannianBatchNorm(N)))
    return own / other


CLAIMS = [
    Measured(
        "gradient",
        says="At a condition of 1e5 its gradient is a tenth of the affine-invariant batch norm's or less.",
        measure=share,
        wanted=below(0.1),
        control=partial(share, condition=2.0),
        against="a condition of 2",
        number="share of the gradient's length",
        reach="proxy",
    )
]
