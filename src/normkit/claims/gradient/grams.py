"""What Grams claims of its steps."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn
from normkit.claims.steps import Run, better


def uphill(seed, kind=nk.Grams):
    """The share of entries' steps that go up their gradient, which is noisy and turns."""
    weight = randn(50).requires_grad_()
    optimizer, up = kind([weight], lr=1e-2), []
    for _ in range(50):
        before, weight.grad = weight.detach().clone(), randn(50)
        optimizer.step()
        up.append((weight.detach() - before) * weight.grad > 0)
    return torch.stack(up).double().mean()


CLAIMS = [
    Measured(
        "descent",
        says="Each step goes down the gradient, in every entry.",
        measure=uphill,
        wanted=below(0.0),
        control=partial(uphill, kind=torch.optim.Adam),
        against="Adam",
        number="share of steps that go up",
    ),
    *(
        better(
            f"than-{name}",
            f"Its loss is 1 % lower than {name}'s, or more.",
            run=Run("grams"),
            over=Run(name),
            by=1.0,
        )
        for name in ("adamw", "lion", "cautious")
    ),
]
