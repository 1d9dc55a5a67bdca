"""What is claimed of MaNo's score under shifts."""

from functools import partial

import normkit as nk
from normkit.claims.kinds import Trained, above
from normkit.claims.trained import explained, largest_share


def gain(seed, score=nk.mano, twin=False):
    """How much more of the accuracy over 20 shifts it explains than the mean largest probability."""
    return explained(seed, score, twin) - explained(seed, largest_share)


CLAIMS = [
    Trained(
        "explains-accuracy",
        says="Over 20 shifts it explains 0.05 more of the accuracy's variance than the mean largest probability.",
        measure=gain,
        wanted=above(0.05),
        control=partial(gain, score=largest_share, twin=True),
        against="the mean largest probability of a twin",
        number="share of the variance",
        bed="trained-digits",
    )
]
