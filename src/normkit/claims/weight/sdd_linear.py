"""What scale-distribution decoupling claims."""

from functools import partial

from torch import nn

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn, relative


def sdd_linear(*sizes, bias):
    """The layer without eps."""
    return nk.SDDLinear(*sizes, bias=bias, eps=0.0)


def moved(seed, kind=sdd_linear):
    """The relative change of the output when the weight is multiplied by 100."""
    linear, x = kind(8, 6, bias=False).double(), randn(16, 8)
    before = linear(x)
    linear.weight.data.mul_(100)
    return relative(linear(x), before)


CLAIMS = [
    Identity(
        "weight-scale",
        says="A hundred times the weight give the same output.",
        measure=moved,
        bound=1e-6,
        breaks=partial(moved, kind=nn.Linear),
        against="torch's Linear",
        number="relative change",
    )
]
