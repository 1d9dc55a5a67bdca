"""What is claimed of batch norms that stay with their clients."""

from normkit.claims.clients import CONTEST, OWN, SHARED

CLAIMS = [
    CONTEST.better(
        "shifted",
        "Where each client's digits are shifted in their own way it is 2 points better than averaging all, or more.",
        "shifted-clients",
        OWN._replace(shifted=True),
        SHARED._replace(shifted=True),
        2.0,
    )
]
