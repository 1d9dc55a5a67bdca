"""What is claimed of slides whose stains are normalized."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above

STAINS = torch.tensor([[[0.65, 0.70, 0.29], [0.27, 0.57, 0.78]], [[0.50, 0.75, 0.43], [0.10, 0.80, 0.59]]])


def patches(stains):
    """Five patches of a slide: two stains, each in amounts that vary from pixel to pixel."""
    amounts = torch.rand(5, 2, 48, 48, dtype=torch.float64).square() * 1.5 + 0.05
    stains = stains.double() / stains.double().norm(dim=1, keepdim=True)
    return 240 * (-torch.einsum("nshw,sc->nchw", amounts, stains)).exp() - 1


def fall(seed, same=False):
    """By how much the distance of the mean colours of two slides falls."""
    one, other = patches(STAINS[0]), patches(STAINS[0 if same else 1])
    norm = nk.StainNorm().double()
    before, after = ((a - b).norm() for a, b in (map(colour, (one, other)), map(colour, (norm(one), norm(other)))))
    return before / after


def colour(slide):
    """The mean colour."""
    return slide.mean((0, 2, 3))


CLAIMS = [
    Measured(
        "colours",
        says="The mean colours of slides with other stains coincide behind it: their distance falls to a tenth.",
        measure=fall,
        wanted=above(10.0),
        control=partial(fall, same=True),
        against="slides with the same stains",
        number="distance before over after",
        draws=20,
    )
]
