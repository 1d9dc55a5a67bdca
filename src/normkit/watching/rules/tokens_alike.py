"""A stream whose tokens have all become the same vector."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History
from normkit.watching.store import Sign

ALIKE = 0.99
"""Of all power in the mean token: what tells tokens apart is then a tenth of their length. Attention without a residual
path comes here doubly exponentially with depth (arXiv 2103.03404)."""
SIGN = Sign("alike", ALIKE)
CARRIED = 0.5
"""The cosine of a block's input and output as it began, where a residual path carries the one to the other: without
one, theirs lie across each other."""
RESIDUAL = Remedy("a residual path", "x + attention(norm(x)) in the place of attention(norm(x))", runs=False)


def find(history: History) -> Iterator[Finding]:
    """Look at the blocks of a model that attends."""
    late = history.late("alike") if history.names("entropy") else {}
    order = [name for name, alike in late.items() if alike > ALIKE]
    if order:
        rank = history.late("rank")[order[-1]]
        carried = any((history.read(name, "cosine")[:1] > CARRIED).any() for name in order)
        yield Finding(
            "tokens have become alike",
            3.4,
            tuple(order),
            f"{late[order[-1]]:.2%} of what {order[-1]} gives is the same for all tokens (effective rank "
            f"{number(rank)}); {len(order)} of {len(late)} blocks are so.",
            since=history.since(order[0], SIGN),
            leads="predictions that do not depend on the place, and vanishing gradients of queries and keys",
            otherwise=f"less than {ALIKE:.0%}",
            margin=(1 - ALIKE) / max(1 - late[order[-1]], 1e-9),
            cause="labels-apart" if carried else "",
            remedies=() if carried else (RESIDUAL,),
        )
