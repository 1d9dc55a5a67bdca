"""What is claimed of a layer norm that cannot overflow."""

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn

SPREADS = (300.0, 1e3, 5e3, 2e4)


def worst(norm):
    """The largest error in float16 over rows of several spreads, against float64; values stay inside float16."""
    errors = []
    for spread in SPREADS:
        x = (spread * randn(8, 64)).clamp(-6e4, 6e4).half()
        errors.append(gap(norm(x).double(), torch.nn.functional.layer_norm(x.double(), (64,))))
    return torch.tensor(errors).max()


def error(seed):
    """Its own largest error."""
    return worst(nk.PrenormalizedLayerNorm(64).half())


def plain(seed):
    """That of a layer norm whose steps are all in float16."""

    def norm(x):
        z = x - x.mean(-1, keepdim=True)
        return z / (z.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    return worst(norm)


CLAIMS = [
    Identity(
        "float16",
        says="It is finite and right in float16 at every spread from 300 to 20,000.",
        measure=error,
        bound=1e-2,
        breaks=plain,
        against="a layer norm in float16",
    )
]
