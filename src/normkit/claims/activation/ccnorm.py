"""What CCNorm's paper claims of its gate."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn


def share(seed, kind="gate"):
    """How far a parameter moves in 50 steps of Adam, as a share of how far the gain does."""
    norm = nk.CCNorm(4).double()
    start = {name: value.detach().clone() for name, value in norm.named_parameters()}
    x, target = 1 + randn(16, 4, 8, 8), randn(16, 4, 8, 8)
    optimizer = torch.optim.Adam([norm.weight, norm.bias, *([norm.gate] if kind == "gate" else [])], lr=0.01)
    for _ in range(50):
        loss = (norm(x) - target).square().mean() + (norm(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    moved = {name: (value.detach() - start[name]).abs().max() for name, value in norm.named_parameters()}
    return moved["gate"] / moved["weight"]


CLAIMS = [
    Measured(
        "gate-learns",
        says="It learns how much of the content to adjust: its gate moves, a thousandth as far as the gain at least.",
        measure=share,
        wanted=above(1e-3),
        control=partial(share, kind="gain"),
        against="a gate that is not trained",
        number="share of the gain's movement",
        draws=5,
    )
]
