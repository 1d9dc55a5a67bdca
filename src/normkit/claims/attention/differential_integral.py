"""What the DINT transformer claims."""

import normkit as nk
from normkit.claims.attention._rows import row_sums
from normkit.claims.kinds import Identity


def off_by(seed, core=nk.DifferentialIntegral):
    """The largest difference of a row's sum from 1."""
    return (row_sums(core(4, heads=2, depth=1, eps=1.0).double()) - 1).abs().max()


def differential(seed):
    """The same of differential attention, whose rows sum to 1 - lambda."""
    return off_by(seed, nk.Differential)


CLAIMS = [
    Identity(
        "rows",
        says="Rows of its map sum to 1.",
        measure=off_by,
        bound=1e-6,
        breaks=differential,
        against="differential attention",
        number="largest |row sum - 1|",
    )
]
