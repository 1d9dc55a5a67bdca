"""What is claimed of where instance norm stands in a block."""

from normkit.claims.contrast import PLAIN, Run, better

CLAIMS = [
    better(
        "unseen-contrast",
        "Inside the block, under unseen contrasts, it is 2 points better than without, or more.",
        run=Run("inside", "block"),
        over=PLAIN,
        by=2.0,
    ),
]
