"""What is claimed of features that are drawn from what all clients know."""

from normkit.claims.clients import Run, as_good, better

CLAIMS = [
    better(
        "two-classes",
        "With two classes a client, drawn features of the others bring a linear map 5 points or more.",
        run=Run("two", hidden=False, filled=True),
        over=Run("two", hidden=False),
        by=5.0,
    ),
    as_good(
        "alike",
        "Where clients are alike they change no more than a point.",
        run=Run(hidden=False, filled=True),
        over=Run(hidden=False),
        by=1.0,
    ),
]
