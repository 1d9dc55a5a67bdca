"""A residual stream that grows exponentially with depth."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History

FEWEST = 4  # blocks: of fewer no law can be told
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
    late, passed, single = history.late("rms"), history.late("cosine"), history.facts.get("single", ())
    stream = [name for name in history.facts["blocks"] if name in passed and name not in single]
    sizes = [late[name] for name in stream if late.get(name, 0.0) > 0 and math.isfinite(late[name])]
    if len(sizes) < FEWEST:
        return
    factor = math.exp(np.polyfit(range(len(sizes)), np.log(sizes), 1)[0])
    if factor > FACTOR and sizes[-1] > TOTAL * sizes[0]:
        yield Finding(
            "the residual stream grows with depth",
            5.0 + math.log10(factor),
            (stream[-1],),
            f"what blocks give grows {number(factor)}x a block, from {number(sizes[0])} to {number(sizes[-1])} over "
            f"{len(sizes)} blocks.",
            leads="later blocks change little, half precision overflows, and gradients grow alike",
            remedies=(
                Remedy("peri-norm", 'norms before and behind each branch: nk.Decoder(..., placement="peri-norm")'),
                Remedy("layernorm-scaling", 'nk.Decoder(..., placement="layernorm-scaling")'),
            ),
        )
