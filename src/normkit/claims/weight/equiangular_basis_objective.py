"""What is claimed of the objective of equiangular basis vectors."""

from functools import partial

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.weight.equiangular_basis import CLOSE

K, D = 40, 20
WELCH = ((K - D) / (D * (K - 1))) ** 0.5  # no K vectors have all cosines below


def largest(seed, steps=8000, allowed=1.1):
    """The largest absolute cosine over Welch's bound, after descent on the objective."""
    module = nk.EquiangularBasis(D, K).double()
    for lr in (1e-2, 1e-3):
        cosine = module.generate(threshold=allowed * WELCH - CLOSE, steps=steps, lr=lr) if steps else module._largest()
    return cosine / WELCH


CLAIMS = [
    Measured(
        "welch",
        says="All cosines fall under a threshold of 1.1 times Welch's bound, of 40 vectors of 20 numbers.",
        measure=largest,
        wanted=below(1.1),
        control=partial(largest, steps=0),
        against="random unit vectors",
        number="largest cosine over Welch's bound",
        draws=2,
    ),
]
