"""What is claimed of derf where it takes a norm's place."""

from normkit.claims.language import LAYERNORM, Run, better, not_worse

CLAIMS = [
    better(
        "than-dyt", "A decoder's loss is 0.5 % lower than with dyt, or more.", run=Run("derf"), over=Run("dyt"), by=0.5
    ),
    not_worse(
        "not-behind-layernorm",
        "A decoder's loss is not above that with layer norm by more than 1 %.",
        run=Run("derf"),
        over=LAYERNORM,
        than=1.0,
    ),
]
