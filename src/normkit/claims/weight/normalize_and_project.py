"""What is claimed of weights that are brought back to their length."""

from functools import partial

from normkit.claims.kinds import Trained, above
from normkit.claims.tasks import LAYERNORM, trend

CLAIMS = [
    Trained(
        "no-loss",
        says="Over 20 changes of the labels the accuracy does not fall by more than a tenth of a point a task.",
        measure=partial(trend, run=LAYERNORM._replace(project=True)),
        wanted=above(-0.1),
        control=partial(trend, run=LAYERNORM),
        against="layer norm alone",
        number="points a task",
        null=None,
        bed="tasks",
    ),
]
