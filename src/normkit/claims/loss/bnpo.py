"""What BNPO claims of the variance of policy gradients."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below

PROMPTS, SAMPLES, BATCHES = 16, 8, 300


def noise(mode, rewards, p):
    """The variance of the gradient of the logit that all prompts share, over the square of its mean."""
    group = torch.arange(PROMPTS).repeat_interleave(SAMPLES)
    gradients = []
    for r, chance in zip(rewards, p, strict=True):
        advantage = r if mode == "reinforce" else nk.bnpo(r, group, mode=mode)
        gradients.append((advantage * (r - chance.repeat_interleave(SAMPLES))).mean())
    gradients = torch.stack(gradients)
    return gradients.var() / gradients.mean().square()


def share(seed, even=False):
    """This noise as a share of the less noisy of REINFORCE's and GRPO's; prompts' chances have a Beta distribution."""
    law = torch.distributions.Beta(torch.tensor(1.5).double(), torch.tensor(3.0).double())
    p = torch.full((BATCHES, PROMPTS), 0.5, dtype=torch.float64) if even else law.sample((BATCHES, PROMPTS))
    rewards = (torch.rand(BATCHES, PROMPTS, SAMPLES, dtype=torch.float64) < p[..., None]).double().flatten(1)
    return noise("bnpo", rewards, p) / min(noise(mode, rewards, p) for mode in ("reinforce", "grpo"))


CLAIMS = [
    Measured(
        "least-variance",
        says="Where prompts' chances vary its gradient is less noisy than REINFORCE's and GRPO's, by 5 % or more.",
        measure=share,
        wanted=below(0.95),
        control=partial(share, even=True),
        against="a chance of a half everywhere",
        number="share of the noise",
        draws=6,
        rule="mean",
        null=1.0,
    )
]
