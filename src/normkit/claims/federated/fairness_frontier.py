"""What is claimed of the cost of fairness."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.federated.disparity_decomposition import CANONICAL
from normkit.claims.kinds import Identity

LIMITS = (0.0, 0.05, 0.2, 0.6)


def apart(seed, table="unique"):
    """How far the least errors under global and under local limits are apart, over a grid of limits."""
    noise = torch.full((2, 2, 2), 0.01, dtype=torch.float64)
    joint = (CANONICAL[table] + noise) / (CANONICAL[table] + noise).sum()
    errors = [
        nk.fairness_frontier(joint, global_limit=first, local_limit=second)
        for limit in LIMITS
        for first, second in ((limit, 2.0), (2.0, limit))
    ]
    return max((one - other).abs() for one, other in zip(errors[::2], errors[1::2], strict=True))


CLAIMS = [
    Identity(
        "frontier",
        says="Where disparity is unique, global and local limits cost the same.",
        measure=apart,
        bound=1e-6,
        breaks=partial(apart, table="redundant"),
        against="a table with one group a client",
        number="difference of the error",
        draws=1,
    )
]
