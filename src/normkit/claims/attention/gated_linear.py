"""What ReGLA claims of saturated gates."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn

HEADS, WIDTH, TOKENS, START, STEPS = 2, 8, 12, 6.0, 500
RATE = 0.1  # the largest of 1, 0.3, 0.1 and 0.03 at which gates without the refinement stay


def unsaturated(seed, refined=True):
    """The share of gates between 0.05 and 0.95 after 500 steps of SGD towards a core whose gates are a half.

    Half of them start at +6, half at -6. Not refined, the second gate stays at a half, where it changes nothing.
    """
    core = nk.GatedLinear(WIDTH, heads=HEADS, norm=None).double()
    sign = torch.ones(HEADS, 1, WIDTH, dtype=torch.float64)
    sign[..., ::2] = -1
    gate, refine = (START * sign).requires_grad_(), torch.zeros_like(sign, requires_grad=True)
    moved = [gate, refine] if refined else [gate]
    steps = torch.optim.SGD(moved, lr=RATE)
    q, k, v = (randn(4, HEADS, TOKENS, WIDTH) for _ in range(3))
    target = core(q, k, v, torch.zeros_like(q), torch.zeros_like(q)).detach()
    for _ in range(STEPS):
        y = core(q, k, v, gate.expand_as(q), refine.expand_as(q))
        loss = (y - target).square().mean() / target.square().mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
    g, r = gate.detach().sigmoid(), refine.detach().sigmoid()
    kept = (1 - r) * g**2 + r * (1 - (1 - g) ** 2)
    return ((kept > 0.05) & (kept < 0.95)).double().mean()


CLAIMS = [
    Measured(
        "leaves-saturation",
        says="From gates of sigmoid(6) and sigmoid(-6) a fifth leaves saturation in 500 steps, where plain gates stay.",
        measure=unsaturated,
        wanted=above(0.2),
        control=partial(unsaturated, refined=False),
        against="gates without the refinement",
        number="share of the gates",
        draws=3,
        reach="proxy",
    )
]
