"""What NorMuon claims of Muon's rows."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn
from normkit.claims.steps import Run, better


def spread(kind):
    """The logarithm of the largest over the least length of a step's rows, after 20 steps."""
    weight = torch.zeros(48, 16, dtype=torch.float64, requires_grad=True)
    optimizer, scale, mean = kind([weight], lr=0.02), randn(48, 1).exp(), randn(48, 16)
    for _ in range(20):
        before, weight.grad = weight.detach().clone(), scale * (mean + randn(48, 16))
        optimizer.step()
    lengths = (weight.detach() - before).norm(dim=1)
    return (lengths.max() / lengths.min()).log()


def share(seed, kind=nk.NorMuon):
    """This spread as a share of Muon's."""
    own = spread(kind)
    torch.manual_seed(seed)
    return own / spread(nk.Muon)


CLAIMS = [
    Measured(
        "even-rows",
        says="It evens the lengths of rows that Muon leaves uneven.",
        measure=share,
        wanted=below(0.3),
        control=partial(share, kind=nk.Muon),
        against="Muon",
        number="share of Muon's log spread",
    ),
    better("than-muon", "Its loss is 0.5 % lower than Muon's, or more.", run=Run("normuon"), over=Run("muon"), by=0.5),
]
