"""What FedLoGe claims of its sparse classifier."""

from functools import partial

import torch
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Measured, below

K, D = 10, 64


def off_by(seed, simplex=True):
    """How far cosines are from -1 / (K - 1) in the mean, or apart: the larger share of 5 % and 0.05."""
    if simplex:
        weight = nk.SparseETFClassifier(D, K).weight.double()
    else:
        weight = torch.randn(K, D).double() * (torch.rand(K, D) > 0.6)
    unit = F.normalize(weight)
    cosines = (unit @ unit.mT)[~torch.eye(K, dtype=torch.bool)]
    return max((cosines.mean() * (K - 1) + 1).abs() / 0.05, cosines.std() / 0.05)


CLAIMS = [
    Measured(
        "angles",
        says="Angles between classes stay equal and as large as can be, with 60 % of zeros.",
        measure=off_by,
        wanted=below(1.0),
        control=partial(off_by, simplex=False),
        against="a random sparse classifier",
        number="share of what is allowed",
        draws=1,
    )
]
