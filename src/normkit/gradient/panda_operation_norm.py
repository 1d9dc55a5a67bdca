"""PA&DA's running norms of operations' gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient.panda_data_probability import PAPER
from normkit.statistics import accurate


@method(
    "panda-operation-norm",
    paper=PAPER,
    shape="K : unit",
    inputs={"sums": "K : unit", "counts": "K : index K"},
)
def panda_operation_norm(previous: Tensor, sums: Tensor, counts: Tensor) -> Tensor:
    """Move the norms of operations by what one step has seen of them.

    For ``panda-path-probability``, which draws the operations of a supernet by these norms: call it after each step.

        norms = (previous + sums / counts) / 2 where sums > 0, else previous

    ``previous`` is 0 at the start of an epoch, so that the first value is halved, as in the authors' code.

    Args:
        previous: the norms before the step, (K,).
        sums: lengths of the gradients of an operation's tensors, summed over the cells that had it, (K,).
        counts: how often it was drawn, int64 (K,).

    PA&DA (Lu et al., 2023), arXiv 2302.14772.
    """
    check.values("panda-operation-norm", "previous", previous, (None,), previous)
    check.values("panda-operation-norm", "sums", sums, previous.shape, previous)
    check.shape("panda-operation-norm", "counts", counts, previous.shape, previous)
    counted = sums > 0
    moved = (accurate(previous) + accurate(sums) / counts.clamp(min=1)) / 2
    return torch.where(counted, moved, accurate(previous)).to(previous.dtype)
