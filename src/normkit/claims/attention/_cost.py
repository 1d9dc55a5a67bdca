"""How the processor's time of an attention core grows with the number of tokens."""

from __future__ import annotations

import torch

from normkit.claims._clock import growth

LENGTHS = (512, 1024, 2048, 4096, 8192)
WIDTH = 16


def slope_of_time(core) -> float:
    """The slope of the logarithm of the time of a pass against that of the number of tokens, 512 to 8,192."""

    def call_of(length):
        q, k, v = (torch.randn(1, 1, length, WIDTH) for _ in range(3))
        return lambda: core(q, k, v)

    with torch.no_grad():
        return growth(call_of, LENGTHS)
