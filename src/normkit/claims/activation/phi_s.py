"""What is claimed of PHI-S for teachers of two scales."""

from functools import partial

import torch

from normkit.claims.kinds import Trained, below
from normkit.claims.scales import errors, imbalance


def above_others(seed, method="phi-s"):
    """The summed relative error of both teachers over the least of other maps, less 1."""
    sums = []
    for name in (method, "standard", "pca", "zca"):
        torch.manual_seed(seed)
        sums.append(sum(errors(name)))
    return sums[0] / min(sums[1:]) - 1


CLAIMS = [
    Trained(
        "balance",
        says="The relative errors of teachers of scales 1 and 100 differ by 15 % at most.",
        measure=partial(imbalance, method="phi-s"),
        wanted=below(0.2),
        control=imbalance,
        against="targets as they are",
        number="log2 of the ratio",
        null=None,
        reach="full",
        bed="two-scales",
    ),
    Trained(
        "sum",
        says="Their sum is not above that of standardizing, of PCA or of ZCA.",
        measure=above_others,
        wanted=below(0.0),
        control=partial(above_others, method="raw"),
        against="targets as they are",
        number="share above the least of the others",
        null=None,
        reach="full",
        bed="two-scales",
    ),
]
