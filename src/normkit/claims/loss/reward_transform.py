"""What transformed rewards claim."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn

PROMPTS, N = 2000, 8


def gain(seed, alike=False):
    """How much more often the best of 8 passes in both properties than under the raw sum."""
    rewards = 2 * randn(PROMPTS, N, 2)
    rewards = rewards[..., :1].expand(-1, -1, 2) if alike else rewards
    reference = torch.ones(PROMPTS * N, 2, dtype=torch.float64)

    def passing(mode):
        total = nk.RewardTransform(mode)(rewards.flatten(0, 1), reference).view(PROMPTS, N)
        picked = rewards[torch.arange(PROMPTS), total.argmax(1)]
        return (picked > 1).all(1).double().mean()

    return passing("log_sigmoid") - passing("identity")


CLAIMS = [
    Measured(
        "both-properties",
        says="The best response passes in both properties more often than under the sum of rewards.",
        measure=gain,
        wanted=above(0.05),
        control=partial(gain, alike=True),
        against="rewards that are the same",
        number="gain of the share",
        rule="mean",
        null=0.0,
    )
]
