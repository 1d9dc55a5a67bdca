"""Batch normalization whose moments, gain and shift stay as they are."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm

FROZEN = "it is frozen"


@method(
    "frozen-batchnorm",
    paper="Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift (Ioffe, "
    "Szegedy, 2015), arXiv 1502.03167, frozen as in detectors: Mask R-CNN (He et al., 2017), arXiv 1703.06870",
    evidence="library",
    shape="N C *",
    aliases={"FrozenBatchNorm2d": {}, "frozen-bn": {}},
    called={"torchvision.ops.FrozenBatchNorm2d": "num_features eps"},
    exempt={
        "moves running_mean": FROZEN,
        "moves running_var": FROZEN,
        "moves weight": FROZEN,
        "moves bias": FROZEN,
    },
)
class FrozenBatchNorm(Norm):
    """Scale and shift each channel by fixed numbers: the running moments, gain and shift of a trained batch norm.

    For detectors and segmenters that start from a pretrained backbone and train with one or two images a process. A
    network trained from scratch takes ``groupnorm`` there.

    In training and evaluation alike,

        y = weight * (x - running_mean) / sqrt(running_var + eps) + bias

    All four are buffers (C,), so that no optimizer and no forward pass changes them.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance under the root.

    Input ``(N, C)`` or ``(N, C, *space)``. The state dictionary of a BatchNorm loads; its ``num_batches_tracked`` is
    left out.

    Batch Normalization (Ioffe, Szegedy, 2015), arXiv 1502.03167, frozen as in Mask R-CNN (He et al., 2017), arXiv
    1703.06870.
    """

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_features: int, *, eps: float = 1e-5):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        for name, start in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((num_features,), start))

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        state_dict.pop(f"{prefix}num_batches_tracked", None)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor) -> Tensor:
        """Scale and shift ``x``."""
        check.channels_first(self, x, self.num_features)
        return ops.normalize_with(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
