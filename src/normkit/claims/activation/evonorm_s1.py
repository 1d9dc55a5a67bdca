"""What is claimed of EvoNorm-S1 in small and in larger batches."""

from normkit.claims.images import as_groupnorm, at_two

CLAIMS = [
    at_two("evonorm-s1", "none"),
    as_groupnorm("evonorm-s1"),
]
