"""RMSNorm over the channels of an image."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate


def _timm(features: int) -> nn.Module:
    from timm.layers import RmsNorm2d as Peer

    return Peer(features)


@method(
    "rmsnorm2d",
    paper="Root Mean Square Layer Normalization (Zhang and Sennrich, 2019), arXiv 1910.07467, over channels as in "
    "Progressive Growing of GANs (2017), arXiv 1710.10196",
    evidence="library",
    shape="N C *",
    over="C",
    replaces=("layernorm2d", "batchnorm", "groupnorm"),
    aliases={"pixelnorm": {"affine": False, "eps": 1e-8}, "PixelNorm": {"affine": False, "eps": 1e-8}},
    called={"timm.layers.RmsNorm2d": "channels=num_features eps affine"},
    dialects={"eps_floor": (False, True)},
    invariant=("scale",),
    peer=_timm,
)
class RMSNorm2d(Norm):
    """Divide the channels at each position by their root mean square and multiply by a learned gain.

    For convolutional networks and transformers that keep channels first. ``layernorm2d`` subtracts the mean as well;
    with large batches ``batchnorm`` folds away at inference.

    Over the C channels of one position,

        y = weight * x / sqrt(mean(x²) + eps) [+ bias]

    which equals moving C last, an RMSNorm, and moving it back. Without a gain it is the pixel norm of generative
    networks (alias ``pixelnorm``, with their eps of 1e-8).

    Args:
        num_features: C, the number of channels.
        eps: added to the mean square under the root.
        affine: learn ``weight``.
        bias: learn a shift; without effect when ``affine`` is off.
        eps_floor: eps is the least length that is divided by: y = weight * sqrt(C) * x / max(||x||, eps), as written
            with ``F.normalize`` in the autoencoders of video models, whose eps is 1e-12.

    Input ``(N, C)`` or ``(N, C, *space)``, in either memory format.

    Root Mean Square Layer Normalization (Zhang, Sennrich, 2019), arXiv 1910.07467; without a gain Progressive Growing
    of GANs (Karras et al., 2017), arXiv 1710.10196.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self, num_features: int, *, eps: float = 1e-6, affine: bool = True, bias: bool = False, eps_floor: bool = False
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.affine, self.eps_floor = bool(affine), bool(eps_floor)
        self.register_parameter("weight", nn.Parameter(torch.ones(num_features)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features)) if affine and bias else None)

    @property
    def normalized_shape(self) -> tuple[int, ...]:
        """What timm's calls ``num_features``."""
        return (self.num_features,)

    @property
    def elementwise_affine(self) -> bool:
        """What timm's calls ``affine``."""
        return self.affine

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        check.channels_first(self, x, self.num_features)
        rule, gain = ops.Row(eps=self.eps), self.weight
        if self.eps_floor:
            rule = ops.Row(eps=self.eps, eps_place="floor", scale=math.sqrt(self.num_features))
        return ops.row_norm(
            x.movedim(1, -1),
            gain if gain is None or not self.eps_floor else accurate(gain) * rule.scale,
            self.bias,
            rule,
            (self.num_features,),
            self,
        ).movedim(-1, 1)
