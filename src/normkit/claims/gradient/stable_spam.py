"""What is claimed of Stable-SPAM where gradients have spikes."""

from functools import partial

from normkit.claims.kinds import Trained, below
from normkit.claims.steps import risen

CLAIMS = [
    Trained(
        "spikes",
        says="Gradients 50 times as large in every 20th step raise its last loss by no more than 5 %.",
        measure=partial(risen, name="stable-spam"),
        wanted=below(5.0),
        control=partial(risen, name="adamw"),
        against="AdamW",
        number="percent",
        null=None,
        bed="perceptron",
    )
]
