"""Layer normalization over the channels of an image."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm


def _timm(features: int) -> nn.Module:
    from timm.layers import LayerNorm2d as Peer

    return Peer(features)


@method(
    "layernorm2d",
    paper="Layer Normalization (Ba, Kiros, Hinton, 2016), arXiv 1607.06450, in the form of ConvNeXt (Liu et "
    "al., 2022), arXiv 2201.03545",
    evidence="library",
    shape="N C H W",
    over="C",
    aliases={
        "LayerNorm1d": {"space": 1},
        "position-norm": {"affine": False, "eps": 1e-5},
        "positional-norm": {"affine": False, "eps": 1e-5},
        "pono": {"affine": False, "eps": 1e-5},
        "ln2d": {},
        "channel-layernorm": {},
    },
    replaces=("batchnorm", "groupnorm"),
    called={
        "timm.layers.LayerNorm2d": "num_channels=num_features eps affine",
        "torchvision's LayerNorm2d": "normalized_shape=num_features eps elementwise_affine=affine bias device dtype",
    },
    dialects={"space": (2, 1, None)},
    invariant=("shift", "scale"),
    peer=_timm,
)
class LayerNorm2d(Norm):
    """Center the channels at each pixel on their mean and divide them by their standard deviation.

    For ConvNeXt and vision transformers that keep channels first. ``rmsnorm2d`` leaves out the mean; with large batches
    ``batchnorm`` folds away at inference.

    With mean and biased variance over the C channels of one position,

        y = weight * (x - mean) / sqrt(var + eps) + bias

    which equals moving C last, a layer norm, and moving it back.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance under the root.
        affine: learn ``weight`` and ``bias``.
        bias: learn ``bias``; without effect when ``affine`` is off.
        space: number of axes of space, where an input of any other rank is an error: 2 for images, 1 for sequences
            ``(N, C, L)``; None takes any.

    Input ``(N, C, H, W)``, or as ``space`` says, in either memory format.

    Layer Normalization (Ba, Kiros, Hinton, 2016), arXiv 1607.06450, in the form of ConvNeXt (Liu et al., 2022),
    arXiv 2201.03545.
    """

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-6,
        affine: bool = True,
        bias: bool = True,
        space: int | None = 2,
    ):
        super().__init__()
        self.space = None if space is None else check.size(self, "space", space, 0)
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.affine = bool(affine)
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine and bias else None

    @property
    def normalized_shape(self) -> tuple[int, ...]:
        """What timm's and torchvision's, which are layer norms, call ``num_features``."""
        return (self.num_features,)

    @property
    def elementwise_affine(self) -> bool:
        """What they call ``affine``."""
        return self.affine

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        check.channels_first(self, x, self.num_features, *(2, None) if self.space is None else [self.space + 2] * 2)
        return ops.layer_norm2d(x, self.weight, self.bias, eps=self.eps)
