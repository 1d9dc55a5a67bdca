"""What is claimed of EvoNorm-S2 in small and in larger batches."""

from normkit.claims.images import as_groupnorm, at_two

CLAIMS = [
    at_two("evonorm-s2", "none"),
    as_groupnorm("evonorm-s2"),
]
