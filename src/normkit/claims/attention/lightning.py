"""What is claimed of lightning attention's speed."""

from functools import partial

import torch

import normkit as nk
from normkit.claims._clock import seconds
from normkit.claims.kinds import Measured, below

LENGTHS = (256, 1024, 4096, 8192)


def unevenness(seed, kind=nk.Lightning, first=0):
    """The largest over the least time a token, over sequences of several lengths."""
    core, lengths = kind(64, heads=2, causal=True), LENGTHS[first:]
    with torch.no_grad():
        spent = seconds(*(run(core, length) for length in lengths), rounds=3)
    each = [time / length for time, length in zip(spent, lengths, strict=True)]
    return max(each) / min(each)


def run(core, length):
    """A pass over that many tokens."""
    q, k, v = (torch.randn(1, 2, length, 64) for _ in range(3))
    return lambda: core(q, k, v)


CLAIMS = [
    Measured(
        "constant-time",
        says="A token takes the same time in sequences of 256 to 8,192 tokens.",
        measure=unevenness,
        wanted=below(1.3),
        control=partial(unevenness, kind=nk.Softmax),
        against="softmax",
        number="largest over least time a token",
        draws=3,
        rule="median",
    ),
    Measured(
        "constant-time-long",
        says="The same from 1,024 tokens on, where a call's own cost is small.",
        measure=partial(unevenness, first=1),
        wanted=below(1.3),
        control=partial(unevenness, kind=nk.Softmax, first=1),
        against="softmax",
        number="largest over least time a token",
        draws=3,
        rule="median",
    ),
]
