"""What is claimed of batch renormalization where it is trained."""

from normkit.claims.beds import BATCHNORM, PAIRS, Run, as_good

RENORM = Run("batch-renorm", 4)

CLAIMS = [
    as_good(
        "two-classes-mixed",
        "In batches of two classes it is within 1.5 points of batch norm in mixed ones.",
        run=PAIRS._replace(norm="batch-renorm"),
        over=BATCHNORM,
        by=1.5,
    ),
    as_good(
        "batches-of-four",
        "In batches of 4 it is within 1.5 points of batch norm in batches of 32.",
        run=RENORM,
        over=BATCHNORM,
        by=1.5,
    ),
]
