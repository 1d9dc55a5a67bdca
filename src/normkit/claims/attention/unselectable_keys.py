"""What is claimed of keys that no query selects."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity, Measured, above
from normkit.claims.measures import randn


def share(n, dim, scaled=False):
    """The share of normal keys that cannot be selected; scaled ones have one length."""
    keys = randn(n, dim)
    return nk.unselectable_keys(torch.nn.functional.normalize(keys, dim=-1) if scaled else keys).double().mean()


def least(seed, sizes, scaled=False):
    """The least share over numbers of keys and of dimensions."""
    return min(share(n, dim, scaled) for n in sizes for dim in (2, 4, 8))


def largest(seed, scaled=True):
    """The largest share of 20 to 500 keys in 2 to 16 dimensions."""
    return max(share(n, dim, scaled) for n, dim in ((20, 16), (100, 8), (500, 2), (500, 8)))


SPHERE = "keys of one length"
CLAIMS = [
    Measured(
        "many",
        says="Of 500 normal keys more than a tenth cannot be selected, in 2 to 8 dimensions.",
        measure=partial(least, sizes=(500,)),
        wanted=above(0.1),
        control=partial(least, sizes=(500,), scaled=True),
        against=SPHERE,
        number="least share of the keys",
        draws=3,
    ),
    Measured(
        "few",
        says="Of 20 and of 100 too.",
        measure=partial(least, sizes=(20, 100)),
        wanted=above(0.1),
        control=partial(least, sizes=(20, 100), scaled=True),
        against=SPHERE,
        number="least share of the keys",
        draws=3,
    ),
    Identity(
        "scaled",
        says="With layer norm's scaling every key can be selected, of 20 to 500 in 2 to 16 dimensions.",
        measure=largest,
        bound=0.0,
        breaks=partial(largest, scaled=False),
        against="keys without the scaling",
        number="share of the keys",
        draws=3,
    ),
]
