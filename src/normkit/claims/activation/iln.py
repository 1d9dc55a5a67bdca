"""What is claimed of shares between two norms that are learned."""

from normkit.claims.blends import separates

CLAIMS = [separates("iln")]
