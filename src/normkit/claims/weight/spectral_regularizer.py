"""What is claimed of a pull of singular values to 1."""

from normkit.claims.tasks import better

CLAIMS = [
    better(
        "over-none",
        "In the last tasks it is 3 points ahead of no penalty, or more.",
        "spectral",
        over="none",
        by=3.0,
        against="no penalty, from another start",
    ),
    better(
        "over-l2",
        "In the last tasks it is 3 points ahead of the best pull to 0, or more.",
        "spectral",
        over="l2",
        by=3.0,
        against="the same pull to 0, from another start",
    ),
]
