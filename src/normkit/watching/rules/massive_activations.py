"""A few entries that hold all the power of what a block gives."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, number
from normkit.watching.history import History
from normkit.watching.store import Sign

KURTOSIS = 200.0
"""If a share p of the entries holds all the power, the kurtosis is 1 / p: one in two hundred. That of a normal variable
is 3, of one behind a ReLU about 10; massive activations of language models have thousands (arXiv 2402.17762)."""
SIGN = Sign("kurtosis", KURTOSIS)


def find(history: History) -> Iterator[Finding]:
    """Look at what blocks give."""
    late, rms = history.late("kurtosis"), history.late("rms")
    ill = [name for name in history.facts["blocks"] if late.get(name, 0.0) > KURTOSIS]
    order = sorted(ill, key=lambda name: -late[name])
    if order:
        name = order[0]
        largest = history.late("largest")[name]
        channel, token = (int(history.series(name, what)[-1]) for what in ("channel", "token"))
        yield Finding(
            "activations are massive",
            2.0,
            tuple(order),
            f"{name} gives {number(largest)} in channel {channel} at token {token}, {number(largest / rms[name])} "
            f"times the root mean square of all; about one entry in {number(late[name])} holds all the power.",
            since=history.since(name, SIGN),
            leads="steps of quantization as coarse as the rest is large, and norms that this channel decides",
            otherwise=f"a kurtosis of about 3 to 10, at most {KURTOSIS:g}",
            margin=late[name] / KURTOSIS,
        )
