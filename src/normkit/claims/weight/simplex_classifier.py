"""What is claimed of a head of fixed corners."""

from functools import partial

from normkit.claims.features import Pair, compatible
from normkit.claims.kinds import Trained, above

CLAIMS = [
    Trained(
        "compatible",
        says="Neighbours in the features of another network are right 10 points more often than with a learned head.",
        measure=partial(compatible, pair=Pair("simplex")),
        wanted=above(10.0),
        control=partial(compatible, pair=Pair("learned", twin=True)),
        against="learned heads of other starts",
        number="points",
        bed="features",
    ),
]
