"""Modulated AdaIN: instance normalization with a gain and a shift that another network hands in."""

from __future__ import annotations

from torch import Tensor

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "adain-modulated",
    paper="Multimodal Unsupervised Image-to-Image Translation (Huang et al., 2018), arXiv 1804.04732",
    evidence="library",
    shape="N C +",
    over="+",
    inputs={"weight": "N C", "bias": "N C"},
    invariant=("shift", "scale"),
)
class AdaINModulated(Norm):
    """Normalize each channel of each sample, then apply a gain and a shift that a style network made.

    For image translation and generators in which a style network makes the gain and shift of each channel, so that one
    vector styles the whole image. A vector knows no place: for a map take ``spade``. Where the style is itself an
    image's features, take ``adain``.

    The AdaIN of MUNIT. With mu and v mean and biased variance over space,

        y[n, c] = weight[n, c] * (x - mu) / sqrt(v + eps) + bias[n, c]

    Args:
        num_features: C.
        eps: added to the variance under the root.

    Input x ``(N, C, *space)``, weight and bias ``(N, C)``; the weight multiplies directly, it is not added to 1.

    Multimodal Unsupervised Image-to-Image Translation (Huang et al., 2018), arXiv 1804.04732.

    Differs from the authors' code in: gain and shift are inputs rather than attributes set from outside, and the
    running statistics that no output depends on are left out.
    """

    def __init__(self, num_features: int, *, eps: float = 1e-5):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Normalize ``x`` and modulate each channel with ``weight`` and ``bias``."""
        check.channels_first(self, x, self.num_features, 3)
        check.values(self, "weight", weight, x.shape[:2], x)
        check.values(self, "bias", bias, x.shape[:2], x)
        return ops.instance_norm(x, weight, bias, eps=self.eps)
