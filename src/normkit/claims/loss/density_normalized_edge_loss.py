"""What density-normalized losses claim."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn, slope

COUNTS = (50, 200, 800, 3200)


def fading(seed, mode="dnorm"):
    """The slope of the gradient of the labeled edges against the number of all, both as logarithms."""
    lengths, labeled, classes = [], randn(20, 5), torch.randint(1, 5, (20,))
    for count in COUNTS:
        target = torch.cat([classes, torch.zeros(count - 20, dtype=torch.int64)])
        logits = torch.cat([labeled, randn(count - 20, 5)]).requires_grad_()
        gradient = torch.autograd.grad(nk.DensityNormalizedEdgeLoss(mode)(logits, target), logits)[0]
        lengths.append(gradient[:20].norm().log())
    return abs(slope(torch.tensor(COUNTS).double().log(), lengths))


CLAIMS = [
    Measured(
        "no-fading",
        says="The weight of labeled edges does not fall as graphs grow.",
        measure=fading,
        wanted=below(0.05),
        control=partial(fading, mode="baseline"),
        against="a mean over all edges",
        number="|slope|",
    )
]
