"""What gyro normalization claims on subspaces."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn
from normkit.manifold import _subspaces

N, P = 6, 2


def off_origin(seed, exp_mode="expm", centred=True):
    """How far the mean of the output is from the origin: the length of the mean tangent vector there."""
    base = torch.linalg.qr(randn(N, P))[0]
    x = torch.linalg.qr(base + 0.15 * randn(32, 1, N, P))[0]
    if centred:
        norm = nk.GyroBNGrassmann(N, p=P, exp_mode=exp_mode, karcher_steps=100).double()
        norm.scale.data.fill_(0.3)  # a variance of 1 would take some of them past the cut locus
        x = norm(x)
    origin = torch.eye(N, P, dtype=torch.float64)
    return _subspaces.mean_log(origin, x[:, 0]).norm()


UNCENTRED = partial(off_origin, centred=False)
CLAIMS = [
    Identity(
        "centred",
        says="The mean of the normalized batch is the origin, with the exponential of the equations.",
        measure=off_origin,
        bound=1e-6,
        breaks=UNCENTRED,
        against="the batch as it came",
        number="distance",
    ),
    Identity(
        "centred-as-published",
        says="The mean of the normalized batch is the origin, with the Cayley map of the authors' code.",
        measure=partial(off_origin, exp_mode="cayley"),
        bound=1e-6,
        breaks=UNCENTRED,
        against="the batch as it came",
        number="distance",
    ),
]
