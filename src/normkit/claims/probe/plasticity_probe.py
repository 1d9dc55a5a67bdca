"""What is claimed of networks that learn one task after another."""

from functools import partial

from normkit.claims.kinds import Trained, above, below
from normkit.claims.tasks import LAYERNORM, PLAIN, lessened, trend

CLAIMS = [
    Trained(
        "lost",
        says="Over 20 changes of the labels the accuracy falls from task to task.",
        measure=partial(trend, run=PLAIN),
        wanted=below(-0.25),
        control=partial(trend, run=PLAIN._replace(anew=True)),
        against="a network that begins each task anew",
        number="points a task",
        bed="tasks",
    ),
    Trained(
        "layernorm",
        says="With layer norm it falls half as fast, or slower.",
        measure=partial(lessened, run=LAYERNORM),
        wanted=above(0.0),
        control=partial(lessened, run=PLAIN._replace(permute=True)),
        against="no norm, from another start",
        number="points a task that are above half of the fall",
        bed="tasks",
    ),
]
