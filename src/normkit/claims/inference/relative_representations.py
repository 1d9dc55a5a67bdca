"""What is claimed of codes that are relative to anchors."""

from functools import partial

from normkit.claims.features import Pair, stitched
from normkit.claims.kinds import Trained, below

ABSOLUTE, RELATIVE = Pair("absolute"), Pair("relative")

CLAIMS = [
    Trained(
        "stitched",
        says="Another network's decoder makes at most 0.3 of the error that it makes of absolute codes.",
        measure=partial(stitched, pair=RELATIVE, over=ABSOLUTE, across=True),
        wanted=below(0.3),
        control=partial(stitched, pair=Pair("absolute", twin=True), over=ABSOLUTE, across=True),
        against="absolute codes of other starts",
        number="share of the error",
        null=None,
        reach="full",
        bed="features",
    ),
    Trained(
        "as-its-own",
        says="It makes at most twice the error of the own decoder.",
        measure=partial(stitched, pair=RELATIVE, over=RELATIVE, across=False),
        wanted=below(2.0),
        control=partial(stitched, pair=ABSOLUTE, over=ABSOLUTE, across=False),
        against="absolute codes",
        number="share of the own decoder's error",
        null=None,
        reach="full",
        bed="features",
    ),
]
