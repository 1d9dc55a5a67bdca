"""What is claimed of EvoNorm-S0 in small and in larger batches."""

from normkit.claims.images import as_groupnorm, at_two

CLAIMS = [
    at_two("evonorm-s0", "none"),
    as_groupnorm("evonorm-s0"),
]
