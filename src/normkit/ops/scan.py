"""First-order linear recurrences over a batch, without a loop over its samples."""

from __future__ import annotations

import torch
from torch import Tensor


def recurrence(decay: Tensor, drive: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Run z <- decay[t] z + drive[t] from ``start``; return z before each step, (N, C), and after the last, (C,).

    ``decay`` and ``drive`` are (N, C). It takes log2(N) steps on all of them, to the rounding of the loop.

    >>> before, after = recurrence(torch.tensor([[0.5], [2.0]]), torch.tensor([[1.0], [1.0]]), torch.tensor([4.0]))
    >>> before.flatten(), after
    (tensor([4., 3.]), tensor([7.]))
    """
    product, value = _prefixes(decay, drive)
    states = product * start + value
    return states[:-1], states[-1]


def _prefixes(decay: Tensor, drive: Tensor) -> tuple[Tensor, Tensor]:
    """The maps z -> product z + value that the first 0 to N steps are, (N + 1, C) each."""
    return _scan(torch.nn.functional.pad(decay, (0, 0, 1, 0), value=1.0), torch.nn.functional.pad(drive, (0, 0, 1, 0)))


@torch.library.custom_op("normkit::scan", mutates_args=())
def _scan(decay: Tensor, drive: Tensor) -> tuple[Tensor, Tensor]:
    """Join each map with those before it: 1, then 2, then 4, ... at a time (Hillis, Steele, 1986).

    An operator of its own since the number of rounds hangs on the batch size, which a compiled graph must not.
    """
    product, value, largest = decay.clone(), drive.clone(), torch.finfo(decay.dtype).max
    reach = 1
    while reach < len(decay):
        value = torch.cat([value[:reach], torch.addcmul(value[reach:], product[reach:], value[:-reach])])
        # a product that overflows stays finite, so that times 0 it is 0, as in the loop
        joined = (product[reach:] * product[:-reach]).clamp(-largest, largest)
        product = torch.cat([product[:reach], joined])
        reach *= 2
    return product, value


@_scan.register_fake
def _(decay, drive):
    return torch.empty_like(decay), torch.empty_like(drive)
