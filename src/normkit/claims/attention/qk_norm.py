"""What query-key normalization claims."""

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn

SCALE = 10.0


def spread(core):
    """How far scores of one query are apart, as a share of the 2 scale that they can be; keys of both signs."""
    q, keys = 100 * randn(1, 1, 8, 4), 100 * randn(1, 1, 8, 4)
    k = torch.cat([keys, -keys, q], 2)
    weights = core(q, k, torch.eye(k.shape[2], dtype=torch.float64).expand(1, 1, -1, -1))
    scores = weights.clamp(min=1e-300).log()
    return (scores.amax(-1) - scores.amin(-1)).max() / (2 * SCALE) - 1


def normalized(seed):
    """By how much a score passes the scale."""
    return spread(nk.QKNorm(4, heads=1, scale=SCALE).double())


def plain(seed):
    """The same with softmax attention."""
    return spread(nk.Softmax(4, heads=1))


CLAIMS = [
    Identity(
        "bounded",
        says="No score exceeds the scale, however large queries and keys are.",
        measure=normalized,
        bound=1e-6,
        breaks=plain,
        against="softmax attention",
        number="excess over the scale",
    )
]
