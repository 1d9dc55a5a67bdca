"""What is claimed of dyt where it takes a norm's place."""

from normkit.claims.language import LAYERNORM, Run, as_good

CLAIMS = [
    as_good(
        "as-layernorm",
        "A decoder's loss is within 1 % of that with layer norm.",
        run=Run("dyt"),
        over=LAYERNORM,
        by=1.0,
    )
]
