"""What is claimed of EvoNorm-S0 in batches of 64."""

from normkit.claims.images import as_groupnorm

CLAIMS = [
    as_groupnorm("evonorm-s0"),
]
