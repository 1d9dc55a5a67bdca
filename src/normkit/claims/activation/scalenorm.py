"""What is claimed of scale norm in a small transformer."""

from normkit.claims.language import LAYERNORM, Run, better

CLAIMS = [
    better(
        "than-layernorm",
        "On a small text the loss is 0.5 % lower than with layer norm, or more.",
        run=Run("scalenorm"),
        over=LAYERNORM,
        by=0.5,
    )
]
