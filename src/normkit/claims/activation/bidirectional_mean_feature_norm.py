"""What CORE-ReID claims of its joined features."""

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn


def swapped(seed, first_only=False):
    """What changes when image and mirror image are swapped."""
    norm, one, other = nk.BidirectionalMeanFeatureNorm(), randn(8, 16), randn(8, 16)
    if first_only:
        return gap(norm(one, one), norm(other, other))
    return gap(norm(one, other), norm(other, one))


def one_sided(seed):
    """The same where the first feature alone counts."""
    return swapped(seed, first_only=True)


CLAIMS = [
    Identity(
        "swap",
        says="An image and its mirror image may be swapped.",
        measure=swapped,
        bound=1e-12,
        breaks=one_sided,
        against="the feature of one side alone",
    )
]
