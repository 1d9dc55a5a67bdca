"""What CoMoGAN claims of functional instance normalization."""

import math
from functools import partial

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn, randomized


def turned(seed, by=2 * math.pi):
    """What changes when the angle grows."""
    norm, x, phi = randomized(nk.FIN(4)), randn(6, 4, 5, 5), randn(6)
    return gap(norm(x, phi), norm(x, phi + by))


CLAIMS = [
    Identity(
        "period",
        says="The output is periodic in the angle, with a period of 2 pi.",
        measure=turned,
        bound=1e-12,
        breaks=partial(turned, by=math.pi),
        against="half a turn",
    )
]
