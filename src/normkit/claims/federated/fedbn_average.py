"""What is claimed of batch norms that stay with their clients."""

from normkit.claims.clients import OWN, SHARED, as_good, better

CLAIMS = [
    better(
        "shifted",
        "Where each client's digits are shifted in their own way it is 2 points better than averaging all, or more.",
        "shifted-clients",
        OWN._replace(shifted=True),
        SHARED._replace(shifted=True),
        2.0,
    ),
    as_good(
        "not-shifted", "Without a shift it is within a point of averaging all.", "shifted-clients", OWN, SHARED, 1.0
    ),
]
