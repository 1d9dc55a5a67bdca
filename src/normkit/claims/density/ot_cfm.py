"""What is claimed of pairs by optimal transport."""

from functools import partial

from normkit.claims.kinds import Trained, below
from normkit.claims.plane import Way, share

CLAIMS = [
    Trained(
        "energy",
        says="The paths' energy is 0.9 of that of pairs that are drawn alone, or less.",
        measure=partial(share, way=Way("ot"), name="energy32"),
        wanted=below(0.9),
        control=partial(share, way=Way(permute=True), name="energy32"),
        against="pairs drawn alone, from another start",
        number="share of the energy",
        null=1.0,
        reach="full",
        bed="plane",
    ),
    Trained(
        "one-step",
        says="In one step its samples are at 0.7 of the distance from data, or less.",
        measure=partial(share, way=Way("ot"), name="error1"),
        wanted=below(0.7),
        control=partial(share, way=Way(permute=True), name="error1"),
        against="pairs drawn alone, from another start",
        number="share of the distance",
        null=1.0,
        reach="full",
        bed="plane",
    ),
]
