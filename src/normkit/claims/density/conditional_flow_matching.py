"""What is claimed of flow matching from a source of any law."""

from functools import partial

from normkit.claims.kinds import Trained, below
from normkit.claims.plane import Way, beyond_data

CLAIMS = [
    Trained(
        "any-source",
        says="Eight normal laws are carried to two moons, no farther from data than twice as far as other data.",
        measure=partial(beyond_data, way=Way()),
        wanted=below(2.0),
        control=partial(beyond_data, way=Way(share=0.0)),
        against="after one step of training",
        number="share of other data's distance",
        null=None,
        bed="plane",
    ),
]
