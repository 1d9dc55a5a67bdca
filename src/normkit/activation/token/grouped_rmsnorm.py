"""RMSNorm of parts of a vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.activation.token._grouped import grouped_row_norm, groups
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "grouped-rmsnorm",
    paper="Root Mean Square Layer Normalization (Zhang and Sennrich, 2019), arXiv 1910.07467, in groups as in "
    "Retentive Network (Sun et al., 2023), arXiv 2307.08621",
    evidence="equations",
    shape="... C",
    over="C/G",
    example={"group_size": 4},
    replaces=("rmsnorm", "layernorm"),
    aliases={"group-rmsnorm": {}, "headwise-rmsnorm": {}, "grouped-layernorm": {"center": True, "eps": 1e-5}},
    dialects={"center": (False, True)},
    invariant=("scale",),
    provenance="equations in float64 in tests/activation/test_token_neighbours.py",
)
class GroupedRMSNorm(Norm):
    """Divide each run of ``group_size`` entries of a vector by its root mean square; a learned gain an entry.

    For what heads give, before they are joined by a linear map: no head drowns the others, and the heads may lie on
    different devices. A norm over the whole vector is ``rmsnorm``.

    Over each group of the last axis,

        y = weight * x / sqrt(mean(x²) + eps) + bias

    Args:
        dim: size of the last axis.
        group_size: entries of a group, a divisor of ``dim``: the features of a head.
        eps: added to the mean square under the root.
        affine: learn ``weight`` (dim,).
        bias: learn ``bias``; without effect when ``affine`` is off.
        center: subtract each group's mean first, a layer norm in groups.

    Root Mean Square Layer Normalization (Zhang, Sennrich, 2019), arXiv 1910.07467, in groups as in Retentive Network
    (Sun et al., 2023), arXiv 2307.08621.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        dim: int,
        *,
        group_size: int,
        eps: float = 1e-6,
        affine: bool = True,
        bias: bool = False,
        center: bool = False,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.num_groups = groups(self, dim, check.size(self, "group_size", group_size))
        self.rule = ops.Row(center=bool(center), eps=check.eps(self, eps))
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(dim)) if affine and bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``, whose last axis has ``dim`` entries."""
        check.features_last(self, x, self.dim)
        y = grouped_row_norm(x, self.num_groups, self.rule)
        y = y if self.weight is None else y * self.weight
        return (y if self.bias is None else y + self.bias).to(x.dtype)
