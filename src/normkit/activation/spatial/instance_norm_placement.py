"""Where instance norm stands in a residual block."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.activation.batch.batchnorm import BatchNorm
from normkit.activation.spatial.instancenorm import InstanceNorm
from normkit.catalog import method
from normkit.kinds import Method

PLACEMENTS = ("none", "inside", "outside", "both")


@method(
    "instance-norm-placement",
    paper="Learning Generalisable Omni-Scale Representations for Person Re-Identification (Zhou et al., 2019), "
    "arXiv 1910.06827",
    shape="N C +",
    over="N *",
    inputs={"identity": "N C +"},
)
class InstanceNormPlacement(Method):
    """End a residual block: normalize the branch, add the identity, with instance norm at one of four places; ReLU.

    For recognition that shall hold up in another domain, where a search (``placement-search``) picks one a block. With
    BN batch norm and IN instance norm over space,

        none      relu(BN(branch) + identity)              inside    relu(IN(branch) + identity)
        outside   relu(IN(BN(branch) + identity))          both      relu(IN(IN(branch) + identity))

    ``"inside"`` and ``"both"`` have no batch norm: the instance norm replaces it.

    Args:
        num_features: C, the number of channels.
        placement: ``"none"``, ``"inside"``, ``"outside"`` or ``"both"``.
        affine: learn gains and shifts; off during a search.
        sync: join the batch norm's moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    ``module(branch, identity)``: both (N, C, *space); the branch before its last norm. Where their channels differ the
    identity is mapped first, outside of this module.

    Learning Generalisable Omni-Scale Representations for Person Re-Identification (Zhou et al., 2019), arXiv
    1910.06827, there OSNet-AIN.
    """

    def __init__(
        self,
        num_features: int,
        *,
        placement: str = "none",
        affine: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.placement = check.choice(self, "placement", placement, PLACEMENTS)
        joined = {"affine": affine, "sync": bool(sync), "process_group": process_group}
        batch, inside = placement in ("none", "outside"), placement in ("inside", "both")
        self.batch = BatchNorm(num_features, **joined) if batch else None
        self.inside = InstanceNorm(num_features, affine=affine) if inside else None
        self.outside = InstanceNorm(num_features, affine=affine) if placement in ("outside", "both") else None

    def forward(self, branch: Tensor, identity: Tensor) -> Tensor:
        """Normalize ``branch`` and add ``identity``."""
        check.channels_first(self, branch, self.num_features, 3, name="branch")
        check.values(self, "identity", identity, branch.shape, branch)
        first = self.inside if self.batch is None else self.batch
        y = first(branch) + identity  # type: ignore[misc]
        y = y if self.outside is None else self.outside(y)
        return torch.relu(y).to(branch.dtype)
