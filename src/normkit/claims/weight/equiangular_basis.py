"""What is claimed of a fixed head of nearly orthogonal vectors."""

from normkit.claims.images import Run, as_good

CLAIMS = [
    as_good(
        "as-many",
        "With as many features as classes it is within a point of a head that is learned.",
        "images",
        Run(head="basis", width=10),
        Run(width=10),
        1.0,
        draws=16,
    ),
    as_good(
        "half-as-many",
        "With half as many features as classes it is within a point of a head that is learned.",
        "images",
        Run(head="basis", width=5),
        Run(width=5),
        1.0,
        draws=16,
    ),
]
