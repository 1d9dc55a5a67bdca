"""What Flowformer claims of degenerate rows."""

import math
from functools import partial

import normkit as nk
from normkit.claims.attention._cost import WIDTH, slope_of_time
from normkit.claims.attention._entropy import TOKENS, entropy, pair, rows
from normkit.claims.kinds import Measured, above, below


def linear(q, k):
    """The rows of plain linear attention with sigmoids."""
    weights = q.sigmoid() @ k.sigmoid().mT
    return weights / weights.sum(-1, keepdim=True)


def fall(seed):
    """By how much rows are sharper than those of plain linear attention, as a share of log T."""
    q, k = pair()
    own = entropy(rows(nk.FlowAttention(TOKENS, heads=1).double(), q, k))
    return (entropy(linear(q, k)) - own) / math.log(TOKENS)


def itself(seed):
    """The same of plain linear attention with other queries."""
    q, k = pair()
    return (entropy(linear(q, k)) - entropy(linear(q.flip(2), k))) / math.log(TOKENS)


def growth(seed, kind=nk.FlowAttention):
    """How the time grows with the number of tokens."""
    return slope_of_time(kind(WIDTH, heads=1))


CLAIMS = [
    Measured(
        "sharper",
        says="Its rows have less entropy than those of plain linear attention, by 5 % of log T at least.",
        measure=fall,
        wanted=above(0.05),
        control=itself,
        against="plain linear attention against itself",
        number="share of log T",
    ),
    Measured(
        "linear",
        says="Its time grows as the number of tokens.",
        measure=growth,
        wanted=below(1.2),
        control=partial(growth, kind=nk.Softmax),
        against="softmax",
        number="slope",
        draws=3,
        rule="median",
    ),
]
