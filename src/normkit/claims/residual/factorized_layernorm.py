"""What is claimed of the parts of a layer norm in attention."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above, below
from normkit.claims.measures import gap, randn


def apart(seed, project=True):
    """How far scaling after projection is from a layer norm without eps."""
    x = randn(8, 16)
    parts = nk.FactorizedLayerNorm(16, project=project, affine=False)
    return gap(parts(x), torch.nn.functional.layer_norm(x, (16,), eps=0.0))


def shares(scaled, dims):
    """The shares of 50 keys that no query selects."""
    for dim in dims:
        keys = randn(50, dim)
        keys = nk.FactorizedLayerNorm(dim, project=False, affine=False)(keys) if scaled else keys
        yield nk.unselectable_keys(keys).double().mean().item()


def least_share(seed, scaled=False):
    """The least share, over 2 to 4 dimensions."""
    return min(shares(scaled, (2, 3, 4)))


def largest_share(seed, scaled=True):
    """The largest share, over 2 to 10 dimensions."""
    return max(shares(scaled, (2, 4, 10)))


LENGTHS, SHARE = "keys of one length", "share of keys"
CLAIMS = [
    Measured(
        "composition",
        says="A layer norm is a projection and a scaling.",
        measure=apart,
        wanted=below(1e-12),
        control=partial(apart, project=False),
        against="the scaling alone",
        number="error",
    ),
    Measured(
        "unselectable",
        says="Without the scaling over 30 % of 50 keys cannot be selected, in 2 to 4 dimensions.",
        rule="mean",
        measure=least_share,
        wanted=above(0.3),
        control=partial(least_share, scaled=True),
        against=LENGTHS,
        number=SHARE,
        draws=10,
    ),
    Measured(
        "selectable",
        says="With the scaling every key can be selected.",
        measure=largest_share,
        wanted=below(0.0),
        control=partial(largest_share, scaled=False),
        against="keys without the scaling",
        number=SHARE,
        draws=5,
    ),
]
