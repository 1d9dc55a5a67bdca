"""What is claimed of PCNorm under tints that were not seen."""

from normkit.claims.contrast import in_the_shortcut

CLAIMS = [
    in_the_shortcut("pcnorm"),
]
