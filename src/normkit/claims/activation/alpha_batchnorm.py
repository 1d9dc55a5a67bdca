"""What is claimed of moments that are mixed of those of training and test."""

from functools import partial

from normkit.claims.kinds import Trained, above
from normkit.claims.noise import mixed

CLAIMS = [
    Trained(
        "mixture",
        says="Under noise a mixture is a point better than the moments of training alone and those of test alone.",
        measure=mixed,
        wanted=above(1.0),
        control=partial(mixed, noise=0.0),
        against="digits without noise",
        number="points",
        bed="noisy-digits",
    )
]
