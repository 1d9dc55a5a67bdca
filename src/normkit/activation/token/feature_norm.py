"""Feature normalization: all of a sample's features set to one length."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check, statistics
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.sharded import Parts, by_parts, less


@method(
    "feature-norm",
    paper="Understanding the Role of Layer Normalization in Label-Skewed Federated Learning (Zhang et al., 2024), "
    "arXiv 2308.09565",
    shape="N C *",
    over="C *",
    replaces=("layernorm",),
    invariant=("scale",),
)
class FeatureNorm(Norm):
    """Set the vector of all of a sample's features to a fixed length.

    For the place before the classifier when clients of federated learning see few classes: a loss can then not fall by
    growing the features. With h = x, or x minus the mean of its d = C * prod(space) values with ``center``,

        y = k h / max(||h||, eps),   k = sqrt(d), or ``scale``

    Args:
        num_features: C, the number of channels.
        scale: k, the length of every sample; default sqrt(d), which makes the root mean square 1.
        center: subtract the sample's mean first.
        eps: the least length divided by; not under a root.

    Input ``(N, C)`` or ``(N, C, *space)``, normalized over all axes but the first. A sample of zeros stays zero.

    Understanding the Role of Layer Normalization in Label-Skewed Federated Learning (Zhang, Beitollahi, Bie, Chen,
    2024), arXiv 2308.09565. In the authors' letters: "n" is scale 1, "v" the default, "s" centering, "nc12" scale 12.
    """

    def __init__(self, num_features: int, *, scale: float | None = None, center: bool = False, eps: float = 1e-12):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.scale = None if scale is None else check.number(self, "scale", scale)
        self.center = bool(center)
        self.eps = check.eps(self, eps)

    @by_parts
    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        check.channels_first(self, x, self.num_features)
        features = list(range(1, x.dim()))
        h = statistics.accurate(x)
        if self.center:
            h = h - h.mean(features, keepdim=True)
        length = torch.linalg.vector_norm(h, dim=features, keepdim=True)
        return self._set(h, length, math.prod(x.shape[1:])).to(x.dtype)

    def _set(self, h: Tensor, length: Tensor, count: int) -> Tensor:
        scale = count**0.5 if self.scale is None else self.scale  # a count may be a symbol
        return h * (scale / length.clamp(min=self.eps))

    def over_parts(self, part: Parts) -> Tensor:
        """Set the length of samples whose features are cut, by one message."""
        check.channels_first(self, part.whole, self.num_features)
        features = range(1, part.whole.ndim)
        h, count = statistics.accurate(part.local), part.size(features)
        if self.center:
            mean, var = part.moments(h, features)
            h, square = less(h, mean), var * count
        else:
            (square,) = part.total(features, h.square().sum(tuple(features), keepdim=True))
        return self._set(h, statistics.root(square).to(h.dtype), count).to(part.local.dtype)
