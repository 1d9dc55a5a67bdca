"""A residual stream that grows exponentially with depth."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History
from normkit.watching.trials import Trial

FEWEST = 4  # blocks: fewer show no law
FACTOR = 1.5
"""A layer. Additions of equal size let a stream grow by sqrt(2) at the first layer and ever less after it, so that 1.5
over all layers is growth that feeds on itself."""
TOTAL = 5.0
"""From the first block to the last: over four or five blocks additions alone, each as large as what the first gives,
reach two or three, and a training that goes well was seen at 3.4."""


def find(history: History) -> Iterator[Finding]:
    """Fit a line through the logarithms of the sizes of blocks that give as many channels as they are fed.

    A lone layer is no block with a path around it: plain perceptrons and convolutional networks have no stream.
    """
    stream = stream_of(history)
    sizes = sizes_of(history, stream)
    if len(sizes) < FEWEST:
        return
    factor = growth(sizes)
    if factor > FACTOR and sizes[-1] > TOTAL * sizes[0]:
        yield Finding(
            "the residual stream grows with depth",
            5.0 + math.log10(factor),
            (stream[-1],),
            f"what blocks give grows {number(factor)}x a block, from {number(sizes[0])} to {number(sizes[-1])} over "
            f"{len(sizes)} blocks.",
            leads="later blocks change little, half precision overflows, and gradients grow alike",
            otherwise="additions of equal size: at most 1.4x at the first block, and ever less",
            margin=(factor / FACTOR) ** (len(sizes) - 1),
            remedies=_remedies(history, stream),
        )


def stream_of(history: History) -> list[str]:
    """Return the blocks of a residual stream."""
    passed, single = history.late("cosine"), history.facts.get("single", ())
    return [name for name in history.facts["blocks"] if name in passed and name not in single]


def sizes_of(history: History, stream: list[str]) -> list[float]:
    """Return the sizes of what blocks give."""
    late = history.late("rms")
    return [late[name] for name in stream if late.get(name, 0.0) > 0 and math.isfinite(late[name])]


def growth(sizes: list[float]) -> float:
    """Return the factor a block by which sizes grow."""
    return math.exp(np.polyfit(range(len(sizes)), np.log(sizes), 1)[0])


def _remedies(history: History, stream: list[str]) -> tuple[Remedy, ...]:
    width = history.facts.get("widths", {}).get(stream[-1])
    behind = f"nn.Sequential(model.get_submodule(n), nk.RMSNorm({width}))"
    norms = f"[model.set_submodule(n, {behind}) for n in {tuple(stream)!r}]"
    smaller = "[nn.init.xavier_normal_(p, 0.5) for p in model.parameters() if p.dim() > 1]"
    advice = 'norms before and behind each branch: nk.Decoder(..., placement="peri-norm")'
    return (
        *((Remedy("a norm behind each block", norms),) if width else ()),
        Remedy("smaller weights", smaller),
        Remedy("peri-norm", advice, runs=False),
        Remedy("layernorm-scaling", 'nk.Decoder(..., placement="layernorm-scaling")', runs=False),
    )


def _on_a_copy(history: History) -> float:
    """Return the growth over the places of the stream, whatever stands there now."""
    late, blocks = history.late("rms"), [*history.facts["blocks"]]
    sizes = [late[name] for name in blocks if late.get(name, 0.0) > 0 and math.isfinite(late[name])]
    return growth(sizes) if len(sizes) > 1 else math.nan


TRIAL = Trial(
    what=lambda history, finding: "the growth of what blocks give, a block,",
    read=lambda history, finding: _on_a_copy(history),
)
