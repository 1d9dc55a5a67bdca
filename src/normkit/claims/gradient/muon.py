"""What is claimed of Muon on hidden matrices."""

from functools import partial

from normkit.claims.kinds import Trained, below
from normkit.claims.steps import Run, steps_to

CLAIMS = [
    Trained(
        "fewer-steps",
        says="It comes to AdamW's last loss in 0.8 of the steps, or fewer.",
        measure=partial(steps_to, run=Run("muon")),
        wanted=below(0.8),
        control=partial(steps_to, run=Run(permute=True)),
        against="AdamW from another start",
        number="share of the steps",
        null=1.0,
        bed="perceptron",
        paper="about half of the computation (arXiv 2502.16982)",
    )
]
