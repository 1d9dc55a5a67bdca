"""Instance-layer normalization."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.activation._layer_instance import LayerInstanceNorm
from normkit.catalog import method
from normkit.ops.sharded import Parts, by_parts, own_sums


@method(
    "iln",
    paper="U-GAT-IT: Unsupervised Generative Attentional Networks with Adaptive Layer-Instance Normalization for "
    "Image-to-Image Translation (Kim et al., 2019), arXiv 1907.10830",
    shape="N C +",
    over="C *",
    aliases=("layer-instance-norm",),
    replaces=("instancenorm", "groupnorm"),
    invariant=("shift", "scale"),
)
class ILN(LayerInstanceNorm):
    """Mix instance and layer normalization, by a learned share per channel.

    For decoders of image translation. Where a style should bring gain and shift, take ``adalin``.

    With m_I, v_I over space, per sample and channel, and m_L, v_L over channels and space together, per sample, both
    variances unbiased,

        y = weight * (rho (x - m_I) / sqrt(v_I + eps) + (1 - rho) (x - m_L) / sqrt(v_L + eps)) + bias

    rho starts at 0, the layer norm. Call :meth:`clip_rho` after each optimizer step; the forward pass does not clip.

    Args:
        num_features: C, the number of channels.
        eps: added to both variances under the root.

    Input ``(N, C, *space)`` with at least one axis of space; a single position has variance 0.

    U-GAT-IT (Kim et al., 2019), arXiv 1907.10830: the layer of the decoder's upsampling part.
    """

    def __init__(self, num_features: int, *, eps: float = 1e-5):
        super().__init__(num_features, eps, rho=0.0)
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))

    @by_parts
    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        check.channels_first(self, x, self.num_features, 3)
        return self._blend(x, self.weight, self.bias)

    def over_parts(self, part: Parts) -> Tensor:
        """Normalize images whose channels or space are cut, by one message for each."""
        check.channels_first(self, part.whole, self.num_features, 3)
        exact, space = statistics.accurate(part.local), range(2, part.whole.ndim)
        parameters = {"rho": self.rho, "weight": self.weight, "bias": self.bias}
        rho, weight, bias = (part.parameter(self, name, value, 1) for name, value in parameters.items())
        (instance,) = part.total(space, own_sums(exact, space).flatten(2))
        (layer,) = part.total((1,), instance.sum(2))
        both = [_unbiased(sums, part.size(axes)) for sums, axes in ((instance, space), (layer, (1, *space)))]
        (mean, var), (layer_mean, layer_var) = ([value.to(exact.dtype) for value in pair] for pair in both)
        return self._mix(exact, mean, var, layer_mean, layer_var, rho, weight, bias).to(part.local.dtype)


def _unbiased(sums: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean and variance of ``count`` values from their sum and sum of squares."""
    mean, square = (sums / count).unbind()
    return mean, (square - mean.square()).clamp(min=0) * (count / max(count - 1, 1))
