"""What is claimed of kernels whose logarithms have one length."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

ITEMS = 10


def change(seed, grown, norm_factor="score"):
    """How far the mean of three attributes moves, relative to its length, where the first one grows."""
    logs = [0.002 * (a + a.mT) for a in (randn(ITEMS, ITEMS) for _ in range(4))]
    kernels, scores = torch.stack([torch.matrix_exp(a) for a in logs]), torch.rand(ITEMS, dtype=torch.float64)
    mean = [
        _log(nk.tangent_normalization(own, kernels[3], scores, beta=0.0, norm_factor=norm_factor, ridge=0.0))
        for own in (kernels[:3], torch.cat([grown(kernels[:1]), kernels[1:3]]))
    ]
    return ((mean[1] - mean[0]).norm() / mean[0].norm()).item()


def _log(matrix):
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.log() @ vectors.mT


def longer(kernel):
    """A kernel whose logarithm is a thousand times as long."""
    values, vectors = torch.linalg.eigh(kernel)
    return (vectors * (values.log() * 1000).exp().unsqueeze(-2)) @ vectors.mT


def larger(kernel):
    """A kernel times a thousand."""
    return 1000 * kernel


CLAIMS = [
    Measured(
        "logarithm",
        says="A kernel whose logarithm grows a thousand times does not move the mean, by 5 % at most.",
        measure=partial(change, grown=longer),
        wanted=below(0.05),
        control=partial(change, grown=longer, norm_factor=None),
        against="no normalization",
        number="relative change of the mean",
    ),
    Measured(
        "kernel",
        says="A kernel that grows a thousand times itself does not move it either.",
        measure=partial(change, grown=larger),
        wanted=below(0.05),
        control=partial(change, grown=larger, norm_factor=None),
        against="no normalization",
        number="relative change of the mean",
    ),
]
