"""What is claimed of a step of Metropolis and Hastings with a flow's samples."""

from functools import partial

from normkit.claims.density._modes import SHARE, jumped, plain, share_error
from normkit.claims.kinds import Measured, above, below


def error(seed, sample=jumped, dims=(2, 8)):
    """The largest error of a mode's share, of chains that all began in the other mode."""
    return share_error(sample, dims, 0.0, SHARE)


CLAIMS = [
    Measured(
        "modes",
        says="An imperfect flow's samples put both modes right, within 5 points, in 2 and 8 dimensions.",
        measure=error,
        wanted=below(0.05),
        control=partial(error, sample=plain),
        against="a local walk alone",
        number="error of a mode's share",
        draws=2,
    ),
    Measured(
        "dimension",
        says="In 32 dimensions they do not.",
        measure=partial(error, dims=(32,)),
        wanted=above(0.05),
        control=partial(error, sample=partial(jumped, perfect=True), dims=(32,)),
        against="a perfect flow",
        number="error of a mode's share",
        draws=2,
    ),
]
