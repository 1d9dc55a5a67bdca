"""What is claimed of batch norms that stay with their clients."""

from normkit.claims.clients import Run, as_good, better

OWN, SHARED = Run(norm="batchnorm", local=True), Run(norm="batchnorm")

CLAIMS = [
    better(
        "shifted",
        "Where each client's digits are shifted in their own way it is 2 points better than averaging all, or more.",
        run=OWN._replace(shifted=True),
        over=SHARED._replace(shifted=True),
        by=2.0,
    ),
    as_good("not-shifted", "Without a shift it is within a point of averaging all.", run=OWN, over=SHARED, by=1.0),
]
