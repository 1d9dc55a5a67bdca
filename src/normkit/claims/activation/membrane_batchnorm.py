"""What is claimed of a batch norm before a neuron's threshold."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn, randomized


def differing(seed, moved=0.0):
    """How many spikes differ once the norm is folded into the thresholds."""
    norm = randomized(nk.MembraneBatchNorm(5, steps=6))
    for _ in range(5):
        norm(randn(6, 16, 5, 4, 4) + 0.5)
    norm.eval()
    x = randn(6, 64, 5, 8, 8) + 0.5
    return (norm(x) != folded(norm, x, norm.folded_threshold() + moved)).sum()


def folded(norm, x, threshold):
    """The spikes of a neuron without a norm: where the potential passes the threshold of its channel."""
    threshold, sign = (value[:, None, None] for value in (threshold, norm.weight.sign()))
    potential, spikes = torch.zeros_like(x[0]), []
    for now in x:
        potential = norm.decay * potential + now
        spikes.append(((potential - threshold) * sign > 0).to(x.dtype))
        potential = potential * (1 - spikes[-1])
    return torch.stack(spikes)


CLAIMS = [
    Identity(
        "folds",
        says="The norm folds into the thresholds, and no spike changes.",
        measure=differing,
        bound=0.0,
        breaks=partial(differing, moved=1e-2),
        against="thresholds moved by 0.01",
        number="spikes that differ",
    )
]
