"""What is claimed of word vectors of fixed length."""

from functools import partial

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import cosine, gradient, randn


def length_error(seed, fixed=True):
    """The largest relative error of a row's length."""
    rows = randn(20, 16)
    rows = nk.FixNorm(16, scale=3.0)(rows) if fixed else rows
    return (rows.norm(dim=-1) / 3 - 1).abs().max()


def radial(seed, fixed=True):
    """The largest cosine of a row and its gradient."""
    rows, head = randn(20, 16), randn(16, 16)
    norm = nk.FixNorm(16, scale=3.0) if fixed else lambda x: x
    return cosine(gradient(lambda x: (norm(x) @ head).tanh(), rows), rows)


CLAIMS = [
    Identity(
        "length",
        says="Every row has the length that is asked for.",
        measure=length_error,
        bound=1e-6,
        breaks=partial(length_error, fixed=False),
        against="rows as they are",
        number="relative error",
    ),
    Identity(
        "tangential",
        says="A row's gradient has no radial part.",
        measure=radial,
        bound=1e-6,
        breaks=partial(radial, fixed=False),
        against="rows as they are",
        number="cosine",
    ),
]
