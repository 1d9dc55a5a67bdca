"""What layer normalization over channels is said to be."""

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn, randomized


def apart(seed, axis=1):
    """How far it is from torch's layer norm with an axis moved last."""
    norm, x = randomized(nk.LayerNorm2d(6)), randn(3, 6, 6, 6)
    last = x.movedim(axis, -1)
    expected = torch.nn.functional.layer_norm(last, (6,), norm.weight, norm.bias, norm.eps).movedim(-1, axis)
    return gap(norm(x), expected)


def over_space(seed):
    """The same with an axis of space moved last."""
    return apart(seed, axis=2)


CLAIMS = [
    Identity(
        "is-layernorm",
        says="It is a layer norm of the channels at each pixel.",
        measure=apart,
        bound=1e-12,
        breaks=over_space,
        against="a layer norm along an axis of space",
    )
]
