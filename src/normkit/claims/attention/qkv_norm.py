"""What is claimed of norms on queries, keys and values."""

from normkit.claims.language import LAYERNORM, Run, better

CLAIMS = [
    better(
        "than-plain",
        "Each at its best rate, the loss is 0.5 % lower than without it, or more.",
        run=Run(core="qkv-norm"),
        over=LAYERNORM,
        by=0.5,
    ),
    better(
        "than-qk-norm",
        "Each at its best rate, the loss is 0.5 % lower than with norms on queries and keys alone, or more.",
        run=Run(core="qkv-norm"),
        over=Run(core="qk-norm"),
        by=0.5,
    ),
]
