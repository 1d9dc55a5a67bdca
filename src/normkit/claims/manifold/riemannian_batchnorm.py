"""What batch normalization of positive definite matrices claims."""

from functools import partial

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.manifold.liebn import matrices
from normkit.manifold import _mean, _symmetric


def off_identity(seed, spread=0.2, normalized=True):
    """The affine-invariant distance of the output's barycentre from the identity."""
    x = matrices(spread)
    y = nk.RiemannianBatchNorm(3).double()(x) if normalized else x
    return _symmetric.log(_mean.mean(y)).norm()


CAME = "the matrices as they came"
CLAIMS = [
    Identity(
        "barycentre",
        says="After its one Karcher step the output's barycentre is within 0.001 of the identity, for matrices at a "
        "distance of about 1 from theirs.",
        measure=off_identity,
        bound=1e-3,
        breaks=partial(off_identity, normalized=False),
        against=CAME,
        number="distance",
    ),
    Identity(
        "barycentre-near",
        says="The same for matrices at a distance of about 0.5.",
        measure=partial(off_identity, spread=0.1),
        bound=1e-3,
        breaks=partial(off_identity, normalized=False),
        against=CAME,
        number="distance",
    ),
]
