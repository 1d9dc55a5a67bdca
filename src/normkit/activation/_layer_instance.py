"""The learned blend of layer and instance normalization, which ILN gives a learned affine and AdaLIN a style's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.norm import Norm


class LayerInstanceNorm(Norm):
    """h = rho * instance_norm(x) + (1 - rho) * layer_norm(x), rho per channel, both with unbiased variances."""

    def __init__(self, num_features: int, eps: float, rho: float):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.rho = nn.Parameter(torch.full((num_features,), rho))

    @torch.no_grad()
    def clip_rho(self) -> None:
        """Bring rho back into [0, 1]; for the training loop, after every optimizer step."""
        self.rho.clamp_(0, 1)

    def _blend(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return ``weight * h + bias``, with weight and bias of shape (C,) or (N, C)."""
        exact = statistics.accurate(x)
        space = range(2, x.dim())
        instance, layer = statistics.moments(exact, space), statistics.moments(exact, [1, *space])
        moments = instance.mean, instance.unbiased(), layer.mean, layer.unbiased()
        return self._mix(exact, *moments, self.rho, weight, bias).to(x.dtype)

    def _mix(
        self, x: Tensor, mean: Tensor, var: Tensor, layer_mean: Tensor, layer_var: Tensor, rho, weight, bias
    ) -> Tensor:
        """Both branches are affine in x, so their blend is too: one pass, about the channel's mean for accuracy."""
        scale = (layer_var + self.eps).rsqrt().unsqueeze(1) * (1 - rho)
        offset = (mean - layer_mean.unsqueeze(1)) * scale
        gain = weight * ((var + self.eps).rsqrt() * rho + scale)
        along = (*x.shape[:2], *(1 for _ in x.shape[2:]))
        return (x - mean.view(along)) * gain.view(along) + (weight * offset + bias).view(along)
