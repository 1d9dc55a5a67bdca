"""What SinkGD claims of its iteration."""

import itertools
from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn
from normkit.claims.steps import ADAMW, Run, not_worse


def ratio(seed, going_on=True):
    """The largest ratio of successive errors of the row lengths, over 6 rounds."""
    slope = randn(12, 20) * randn(12, 1).exp()
    errors = []
    for rounds in range(1, 7):
        weight = torch.zeros(12, 20, dtype=torch.float64, requires_grad=True)
        weight.grad = slope.clone()
        nk.SinkGD([weight], lr=1.0, num_iters=rounds if going_on else 1).step()
        errors.append((weight.detach().norm(dim=1) / 20**0.5 - 1).abs().max())
    return max(after / before for before, after in itertools.pairwise(errors))


CLAIMS = [
    Measured(
        "geometric",
        says="Row lengths converge geometrically over the rounds.",
        measure=ratio,
        wanted=below(0.7),
        control=partial(ratio, going_on=False),
        against="one round each time",
        number="largest ratio of successive errors",
    ),
    not_worse("as-adam", "Its loss is not above Adam's by more than 1 %.", run=Run("sinkgd"), over=ADAMW, than=1.0),
]
