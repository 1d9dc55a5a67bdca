"""Min-max normalization of a whole tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate, gather_over_processes

CONSTANT = "all entries are equal: 0/0, as in the authors' code"


@method(
    "tensor-minmax-norm",
    paper="AF-KAN: Activation Function-Based Kolmogorov-Arnold Networks (Ta, Tran, 2025), arXiv 2503.06112",
    shape="... C",
    over="... C",
    invariant=("shift", "scale"),
    exempt={
        "extremes zeros": CONSTANT,
        "extremes ones": CONSTANT,
        "extremes tiny float16": "1e-20 is 0 in float16: all entries are equal",
        "extremes offset bfloat16": "1e4 and a few more are the same in bfloat16: all entries are equal",
        "extremes offset float16": "1e4 and a few more are the same in float16: all entries are equal",
    },
)
class TensorMinMaxNorm(Norm):
    """Bring all entries of a tensor into [0, 1] by its smallest and its largest one.

    For the basis functions of a Kolmogorov-Arnold layer, whatever their activation. One outlier squeezes all other
    entries, and a sample's result depends on its batch.

    Over ALL entries, the batch's included, in training and evaluation alike,

        y = (x - min x) / (max x - min x)

    A tensor whose entries are all equal gives 0/0, NaN. Gradients flow through both extremes, shared by entries that
    tie.

    Args:
        sync: take the extremes over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input of any shape.

    AF-KAN: Activation Function-Based Kolmogorov-Arnold Networks (Ta, Tran, 2025), arXiv 2503.06112.

    Differs from the authors' code in: theirs first divides by the tensor's length, which cancels.
    """

    def __init__(self, *, sync: bool = False, process_group=None):
        super().__init__()
        self.sync, self.process_group = bool(sync), process_group

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        check.floating(self, x)
        return minmax(accurate(x), self.sync, self.process_group).to(x.dtype)


def minmax(x: Tensor, sync: bool = False, group=None) -> Tensor:
    """Shift and scale all entries into [0, 1], with the extremes of all processes where ``sync``."""
    flat = x.flatten()  # torch.onnx knows extremes over an axis only
    if x.numel():
        low, high = flat.amin(0), flat.amax(0)
    else:  # in the graph, so that every process takes part in the backward sum
        low, high = flat.sum() + float("inf"), flat.sum() - float("inf")
    if sync:
        lows, highs = gather_over_processes(torch.stack([low, high]), group).unbind(1)
        low, high = lows.amin(0), highs.amax(0)
    return (x - low) / (high - low)
