"""What is claimed of group norm by the size of the batch."""

from normkit.claims.images import at_two, unchanged

CLAIMS = [
    at_two("groupnorm"),
    unchanged("groupnorm"),
]
