"""Global response normalization."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm


def _timm(features: int) -> nn.Module:
    from timm.layers.grn import GlobalResponseNorm as Peer

    return Peer(features, channels_last=False)


@method(
    "grn",
    paper="ConvNeXt V2: Co-designing and Scaling ConvNets with Masked Autoencoders (Woo et al., 2023), arXiv "
    "2301.00808",
    shape="N C *",
    over="C *",
    aliases=("GlobalResponseNorm",),
    peer=_timm,
)
class GRN(Norm):
    """Scale each channel by its share of the image's response, and add the input again.

    For ConvNeXt-like blocks, against channels that all say the same. It comes beside a block's norm and does not take
    its place.

    With G the L2 norm of a channel over space, per sample,

        Q = G / (mean of G over channels + eps),    y = weight * (x * Q) + bias + x

    weight and bias start at 0: a new layer is the identity.

    Args:
        num_features: C, the number of channels.
        eps: added to the mean of the norms.
        channels_last: the channels are the last axis of ``x``, not axis 1.

    Input ``(N, C, *space)``, or ``(N, *space, C)`` with ``channels_last``.

    ConvNeXt V2: Co-designing and Scaling ConvNets with Masked Autoencoders (Woo et al., 2023), arXiv 2301.00808.

    Differs from the authors' code in: weight and bias have shape (C,), and either layout is taken. From timm's
    GlobalResponseNorm in: ``channels_last`` is off where it is not given. The sparse variant, which pools over the
    active sites of the whole batch, is another layer.
    """

    def __init__(self, num_features: int, *, eps: float = 1e-6, channels_last: bool = False):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.channels_last = bool(channels_last)
        self.weight = nn.Parameter(torch.zeros(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        if self.channels_last:
            check.features_last(self, x, self.num_features)
            if x.dim() < 2:
                raise ValueError(f"GRN: x must have shape (N, *space, C), but its shape is {tuple(x.shape)}")
        else:
            check.channels_first(self, x, self.num_features)
        return ops.global_response_norm(x, self.weight, self.bias, eps=self.eps, channels_last=self.channels_last)
