"""What is claimed of local and global fairness."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity

HALF = torch.eye(2, dtype=torch.float64) / 4
CANONICAL = {  # joint of client, group and prediction
    "unique": torch.stack([HALF, HALF]),  # the prediction is the group, everywhere
    "redundant": torch.tensor([[[0.5, 0], [0, 0]], [[0, 0], [0, 0.5]]], dtype=torch.float64),  # a group a client
    "masked": torch.stack([HALF, HALF.flip(1)]),  # the clients are unfair in opposite ways
}
PARTS = {"unique": (1, 0, 0, 1, 1), "redundant": (0, 1, 0, 1, 0), "masked": (0, 0, 1, 0, 1)}


def canonical_error(seed, turned=False):
    """How far the parts of the three tables are from what they are by definition, in bits."""
    tables = [*CANONICAL.values()]
    tables = tables[1:] + tables[:1] if turned else tables
    parts = [torch.stack([*nk.disparity_decomposition(table)]) for table in tables]
    return (torch.stack(parts) - torch.tensor([*PARTS.values()])).abs().max()


def disagreement(seed, kept=("unique",)):
    """How far global and local disparity are apart in a mixture of tables."""
    shares = torch.rand(len(kept), dtype=torch.float64) + 0.1
    even = torch.full((2, 2, 2), 0.125, dtype=torch.float64)
    table = sum(share * CANONICAL[name] for share, name in zip(shares, kept, strict=True)) + 0.5 * even
    disparity = nk.disparity_decomposition(table / table.sum())
    return (disparity.global_ - disparity.local).abs()


CLAIMS = [
    Identity(
        "canonical",
        says="Unfair alike everywhere is unique, one group a client redundant, clients against each other masked.",
        measure=canonical_error,
        bound=1e-6,
        breaks=partial(canonical_error, turned=True),
        against="the tables in another order",
        number="error in bits",
        draws=1,
    ),
    Identity(
        "agreement",
        says="Global and local fairness agree where nothing is redundant or masked.",
        measure=disagreement,
        bound=1e-6,
        breaks=partial(disagreement, kept=("unique", "redundant")),
        against="a table with a redundant part",
        number="difference in bits",
    ),
    Identity(
        "agreement-masked",
        says="They do not agree where something is masked, however fair the whole.",
        measure=lambda seed: -disagreement(seed, kept=("unique", "masked")),
        bound=-1e-3,
        breaks=lambda seed: -disagreement(seed),
        against="a table without a masked part",
        number="difference in bits, negative",
    ),
]
