"""What NaLaFormer claims of the query's length."""

from functools import partial

import normkit as nk
from normkit.claims.attention._entropy import TOKENS, entropy, pair, rows
from normkit.claims.kinds import Measured, above

SCALES = (0.1, 0.3, 1.0, 3.0, 10.0)


def reach(seed, kind=nk.NormAwareLinear):
    """How far the mean entropy of rows moves while queries of length 1 are multiplied by 0.1 to 10, in nats."""
    (q, k), core = pair(), kind(TOKENS, heads=1).double()
    q = q / q.norm(dim=-1, keepdim=True)
    entropies = [entropy(rows(core, scale * q, k)) for scale in SCALES]
    return max(entropies) - min(entropies)


CLAIMS = [
    Measured(
        "reacts",
        says="The entropy of its rows reacts to the query's length, by 0.2 nats at least.",
        measure=reach,
        wanted=above(0.2),
        control=partial(reach, kind=nk.FlowAttention),
        against="flow attention",
        number="range in nats",
    )
]
