"""What region normalization claims."""

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn

HOLES = (2, 6, 10, 14)


def deviation_error(norm):
    """How far the valid pixels' deviation is from 1, at most, over holes of several sizes that are filled with 0."""
    deviations = []
    for side in HOLES:
        mask = torch.ones(2, 1, 16, 16, dtype=torch.bool)
        mask[..., :side, :side] = False
        x = (randn(2, 3, 16, 16) + 3) * mask
        valid = norm(x, mask).transpose(0, 1)[:, mask[:, 0]]
        deviations.append((valid.std(-1, correction=0) - 1).abs().max())
    return torch.stack(deviations).max()


def by_region(seed):
    """With regions of their own."""
    return deviation_error(nk.RegionNormBasic(3).double())


def by_image(seed):
    """With the statistics of the whole image."""
    norm = nk.BatchNorm(3).double()
    return deviation_error(lambda x, mask: norm(x))


CLAIMS = [
    Identity(
        "valid-region",
        says="The valid pixels keep a deviation of 1, however large the hole.",
        measure=by_region,
        bound=1e-3,
        breaks=by_image,
        against="the whole image's statistics",
        number="error of the deviation",
    )
]
