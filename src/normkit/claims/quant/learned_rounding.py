"""What is claimed of rounding that is learned from a few inputs."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Trained, above
from normkit.claims.trained import any_way, case, held_out, nearest, rounded

BITS, INPUTS, STEPS, RATE = 3, 64, 150, 1e-2


def learned(own):
    """All weights, each rounded so that its layer's outputs stay, one after the other."""
    x = given = own.x[:INPUTS]
    weights = []
    for place, weight in enumerate(own.weights):
        module = nk.LearnedRounding(weight.shape, bits=BITS).double()
        module.fit(weight)
        loss, term = nk.ReconstructionLoss(), nk.RoundingRegularizer(beta=2.0)
        optimizer, target = torch.optim.Adam([module.alpha], lr=RATE), x @ weight.mT
        for _ in range(STEPS):
            optimizer.zero_grad()
            (loss(given @ module(weight).mT, target) + term(module.alpha)).backward()
            optimizer.step()
        weights.append(module.eval()(weight).detach())
        last = place == len(own.weights) - 1
        x, given = (y if last else y.relu() for y in (target, given @ weights[-1].mT))
    return weights


def gain(seed, way="learned"):
    """By how many points it is ahead of the nearest grid point."""
    own = case(seed)
    weights = learned(own) if way == "learned" else [rounded(weight, any_way, BITS) for weight in own.weights]
    return held_out(own, weights) - held_out(own, [rounded(weight, nearest, BITS) for weight in own.weights])


CLAIMS = [
    Trained(
        "over-nearest",
        says="At 3 bits it is 3 points better than the nearest grid point, or more.",
        measure=gain,
        wanted=above(3.0),
        control=partial(gain, way="any"),
        against="up or down by chance",
        number="points",
        bed="trained-digits",
    )
]
