"""What is claimed of clients' weights that the server learns."""

from normkit.claims.clients import Run, better

UNEVEN = Run("uneven", rounds=10)

CLAIMS = [
    better(
        "uneven",
        "At a Dirichlet law of 0.1 it is a point better than averaging, or more.",
        "skewed-clients",
        UNEVEN._replace(learned=True),
        UNEVEN,
        1.0,
    ),
]
