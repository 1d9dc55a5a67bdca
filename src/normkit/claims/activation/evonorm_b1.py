"""What is claimed of EvoNorm-B1 beside batch norm."""

from normkit.claims.images import as_batchnorm

CLAIMS = [
    as_batchnorm("evonorm-b1"),
]
