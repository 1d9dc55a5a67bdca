"""What is claimed of filter response normalization by the size of the batch."""

from normkit.claims.images import SMALL, at_two, not_worse, unchanged

CLAIMS = [
    at_two("frn", "none"),
    unchanged("frn", "none"),
    not_worse(
        "not-behind-batchnorm",
        "In batches of 32 it is not behind batch norm by more than half a point.",
        "small-batches",
        SMALL._replace(norm="frn", act="none", batch=32),
        SMALL._replace(batch=32),
        0.5,
    ),
]
