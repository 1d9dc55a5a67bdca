"""MsgNorm: a message as long as its receiver."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from normkit import check
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "msgnorm",
    paper="DeeperGCN: All You Need to Train Deeper GCNs (Li et al., 2020), arXiv 2006.07739",
    shape="... C",
    over="C",
    aliases=("message-norm",),
    inputs={"message": "... C"},
)
class MsgNorm(Norm):
    """Give each node's aggregated message the length of the node's own features, times a scale.

    For deep graph networks whose aggregator (mean, softmax, power mean) gives messages of the wrong size. Per node,
    over the features,

        y = weight * norm(x) * message / max(norm(message), 1e-12)

    The update that follows, an MLP of x + y, is left to the caller.

    Args:
        learnable: learn the scale; without, ``weight`` stays 1 (it is in the state either way).

    Inputs ``x`` (N, C), the nodes' features, and ``message`` of the same shape; any leading axes will do.

    DeeperGCN: All You Need to Train Deeper GCNs (Li et al., 2020), arXiv 2006.07739.
    """

    def __init__(self, *, learnable: bool = False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1), requires_grad=bool(learnable))

    def forward(self, x: Tensor, message: Tensor) -> Tensor:
        """Rescale ``message``."""
        check.floating(self, x)
        if x.dim() == 0:
            raise ValueError("MsgNorm: x must end in a feature axis, but it is a single number")
        check.values(self, "message", message, x.shape, x)
        length = torch.linalg.vector_norm(accurate(x), dim=-1, keepdim=True)
        return (self.weight * length * functional.normalize(accurate(message), dim=-1)).to(x.dtype)
