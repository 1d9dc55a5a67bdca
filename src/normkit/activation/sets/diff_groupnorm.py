"""Differentiable group normalization: nodes of learned groups."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.activation.batch.batchnorm import BatchNorm
from normkit.catalog import method
from normkit.layers import Linear
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "diff-groupnorm",
    paper="Towards Deeper Graph Neural Networks with Differentiable Group Normalization (Zhou et al., 2020), "
    "arXiv 2006.06972",
    evidence="equations",
    shape="N C",
    over="N",
    example={"num_groups": 3},
    aliases=("differentiable-group-norm",),
    provenance="torch_geometric's equations in float64 in tests/activation/test_graphs.py",
)
class DiffGroupNorm(Norm):
    """Share each node out over learned groups, batch-normalize each group, and add a little of that to the node.

    For deep graph networks: nodes of one group come nearer to each other, and those of different groups do not. With a
    soft assignment S = softmax(lin(x)) and a batch norm for each group and feature,

        y = x + balance * sum over groups i of BatchNorm_i(S_i * x)

    Args:
        num_features: C.
        num_groups: how many groups.
        balance: weight of the normalized part.
        eps: added to the variance under the root.
        momentum: share of the NEW batch in the running moments; None averages all batches alike.
        affine: learn gain and shift of the batch norms.
        sync: join the moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``x`` (nodes, C), of all graphs of a batch. State: ``lin.weight`` (groups, C), and ``norm``, a BatchNorm of
    groups * C features.

    Towards Deeper Graph Neural Networks with Differentiable Group Normalization (Zhou et al., 2020), arXiv 2006.06972.
    """

    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int,
        balance: float = 0.01,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.num_groups = check.size(self, "num_groups", num_groups)
        self.balance = check.number(self, "balance", balance)
        check.eps(self, eps)
        joined = {"sync": sync, "process_group": process_group}
        self.lin = Linear(num_features, num_groups, bias=False)
        self.norm = BatchNorm(num_groups * num_features, eps=eps, momentum=momentum, affine=affine, **joined)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running moments."""
        check.values(self, "x", x, (None, self.num_features), x)
        exact = accurate(x)
        share = torch.softmax(self.lin(exact), -1)
        parts = self.norm((share.unsqueeze(-1) * exact.unsqueeze(1)).flatten(1))
        return (exact + self.balance * parts.unflatten(1, (self.num_groups, -1)).sum(1)).to(x.dtype)
