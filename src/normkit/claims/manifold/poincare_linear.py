"""What Poincaré ResNet claims of its start."""

from functools import partial

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn


def error(seed, id_init=True, size=1e-3):
    """The relative error of an output against its input, of a length of 0.001."""
    x = randn(32, 6)
    x = size * x / x.norm(dim=1, keepdim=True)
    return ((nk.PoincareLinear(6, 6, id_init=id_init).double()(x) - x).norm(dim=1) / size).max()


CLAIMS = [
    Measured(
        "tiny-inputs",
        says="With its own start tiny inputs pass unchanged.",
        measure=error,
        wanted=below(1e-3),
        control=partial(error, id_init=False),
        against="a random start",
        number="relative error",
    )
]
