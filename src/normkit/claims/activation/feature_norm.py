"""What is claimed of a feature norm where each client has one class."""

from functools import partial

from normkit.claims.clients import ALIKE, CONTEST, Run, points
from normkit.claims.kinds import Trained, above, below

NONE, NORM = Run("one"), Run("one", norm="feature-norm")

CLAIMS = [
    Trained(
        "without",
        says="With one class a client fewer than 30 % of all digits are right without a norm.",
        measure=partial(points, run=NONE),
        wanted=below(30.0),
        control=partial(points, run=ALIKE),
        against="clients with all classes",
        number="percent that are right",
        null=None,
        reach="full",
        bed="clients",
    ),
    Trained(
        "learns",
        says="With it more than 60 % are right.",
        measure=partial(points, run=NORM),
        wanted=above(60.0),
        control=partial(points, run=NONE._replace(share=0.1)),
        against="without a norm, after a tenth of the rounds",
        number="percent that are right",
        null=None,
        reach="full",
        bed="clients",
    ),
    Trained(
        "as-layernorm",
        says="With one class a client it is within 5 points of layer norm.",
        measure=partial(CONTEST.gain, run=NORM, over=Run("one", norm="layernorm")),
        wanted=below(5.0),
        control=partial(CONTEST.gain, run=NORM._replace(share=0.1), over=Run("one", norm="layernorm")),
        against="a tenth of the rounds",
        number="points",
        rule="within",
        reach="full",
        bed="clients",
    ),
]
