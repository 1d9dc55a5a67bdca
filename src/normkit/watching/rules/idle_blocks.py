"""Blocks that pass the stream on as it came."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History
from normkit.watching.store import Sign

COSINE = 0.9995
"""Between a block's input and output: what it adds across the stream is 3 % of the stream's length. Layers that were
cut from trained models without loss lie here (arXiv 2403.17887)."""

AS_BUILT = 1 - 1e-4  # without a training a block may well be the identity: many start so
IDENTITY, LEFT, TIME = 1 - 1e-6, 1 - 1e-5, 1000  # a last gain of 0 is about 1 after so many steps at a rate of 1e-3
SIGN = Sign("cosine", COSINE)


def find(history: History) -> Iterator[Finding]:
    """Look at the cosine between input and output."""
    late = history.late("cosine")
    most = 2.0 if history.facts["groups"] else AS_BUILT
    idle = [name for name, cosine in late.items() if COSINE < cosine < most and not _begins(history, name, cosine)]
    order = sorted(idle, key=lambda name: -late[name])
    if not order:
        return
    size = history.late("input_rms")[order[0]]
    yield Finding(
        "blocks do nothing",
        2.8,
        tuple(order),
        f"{len(order)} of {len(late)} blocks change the stream by less than 3 %: the cosine of input and output of "
        f"{order[0]} is {late[order[0]]:.5f}, at a stream of size {number(size)}.",
        since=history.since(order[0], SIGN),
        leads="depth that is paid for and not used",
        otherwise=f"a cosine below {COSINE:g}",
        margin=(1 - COSINE) / max(1 - late[order[0]], 1e-9),
        remedies=_remedies(history),
    )


def _begins(history: History, name: str, cosine: float) -> bool:
    """Whether a block began as the identity and has left it, early in a training."""
    return history.steps[-1] < TIME and cosine < LEFT and history.read(name, "cosine")[0] > IDENTITY


def _remedies(history: History) -> tuple[Remedy, ...]:
    """Propose a norm behind the embedding, or before the blocks: it keeps the stream as large as what these add."""
    for place, kind in history.facts["classes"].items():
        width = history.facts.get("widths", {}).get(place)
        if kind == "Embedding" and width:
            line = f'nn.Sequential(model.get_submodule("{place}"), nk.RMSNorm({width}))'
            return (Remedy("a norm after the embedding", f'model.set_submodule("{place}", {line})'),)
    advice = "it keeps what comes to the blocks as large as what they add"
    return (Remedy("a norm before the first block", advice, runs=False),)
