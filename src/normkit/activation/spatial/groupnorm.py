"""Group normalization."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "groupnorm",
    paper="Group Normalization (Wu, He, 2018), arXiv 1803.08494",
    evidence="library",
    shape="N C *",
    over="C/G *",
    aliases={"gn": {}, "GroupNorm1": {"num_groups": 1}},
    example={"num_groups": 2},
    replaces=("batchnorm", "instancenorm"),
    called={
        "torch.nn.GroupNorm": "num_groups num_channels=num_features eps affine device dtype",
        "timm.layers.GroupNorm": "num_channels=num_features num_groups eps affine",
    },
    invariant=("shift", "scale"),
    peer=lambda features: nn.GroupNorm(2, features),
)
class GroupNorm(Norm):
    """Center groups of channels of each sample on their mean and divide them by their standard deviation.

    For images when batches are small: no sample sees another. With large batches ``batchnorm`` is the usual choice, and
    folds into the layer beside it.

    A group is a run of C / ``num_groups`` neighbouring channels; with mean and biased variance over its channels and
    space,

        y = weight * (x - mean) / sqrt(var + eps) + bias

    ``num_groups`` of C is an instance norm, of 1 a layer norm over channels and space; weight and bias are per
    channel.

    Args:
        num_features: C, the number of channels.
        num_groups: number of groups, a divisor of C; the authors' is 32.
        eps: added to the variance under the root.
        affine: learn ``weight`` and ``bias``.
        bias: learn ``bias``; without effect when ``affine`` is off.

    Input ``(N, C)`` or ``(N, C, *space)``.

    Group Normalization (Wu, He, 2018), arXiv 1803.08494.

    Two integers without names are those of torch.nn.GroupNorm, the number of groups first, or where that one does not
    divide the other, those of timm's, channels first.
    """

    def __init__(
        self, num_features: int, *, num_groups: int = 32, eps: float = 1e-5, affine: bool = True, bias: bool = True
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.num_groups = check.size(self, "num_groups", num_groups)
        check.divides(self, "num_groups", num_groups, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.affine = bool(affine)
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine and bias else None

    @staticmethod
    def sensible(num_features: int, num_groups: int = 32, **_) -> bool:
        """Whether two integers can be meant so: of torch's order and timm's the one where groups divide channels."""
        return all(isinstance(n, int) and n > 0 for n in (num_features, num_groups)) and num_features % num_groups == 0

    @property
    def num_channels(self) -> int:
        """What torch calls ``num_features``."""
        return self.num_features

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        check.channels_first(self, x, self.num_features)
        return ops.group_norm(x, self.num_groups, self.weight, self.bias, eps=self.eps)
