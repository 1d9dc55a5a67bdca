"""What is claimed of a pull of singular values to 1."""

from functools import partial

from normkit.claims.kinds import Trained, above
from normkit.claims.tasks import ahead

CLAIMS = [
    Trained(
        "over-none",
        says="In the last tasks it is 3 points ahead of no penalty, or more.",
        measure=partial(ahead, penalty="spectral", over="none"),
        wanted=above(3.0),
        control=partial(ahead, penalty="none", over="none", permute=True),
        against="no penalty, from another start",
        number="points",
        bed="tasks",
    ),
    Trained(
        "over-l2",
        says="In the last tasks it is 3 points ahead of the best pull to 0, or more.",
        measure=partial(ahead, penalty="spectral", over="l2"),
        wanted=above(3.0),
        control=partial(ahead, penalty="l2", over="l2", permute=True),
        against="the same pull to 0, from another start",
        number="points",
        bed="tasks",
    ),
]
