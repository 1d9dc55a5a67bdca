"""AdaIN: the mean and the deviation of a style, given to a content."""

from __future__ import annotations

from torch import Tensor

from normkit import check, ops, statistics
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "adain",
    paper="Arbitrary Style Transfer in Real-time with Adaptive Instance Normalization (Huang, Belongie, 2017), "
    "arXiv 1703.06868",
    evidence="library",
    shape="N C +",
    over="+",
    aliases=("adaptive-instance-norm",),
    inputs={"style": "N C Hs Ws"},
    invariant=("shift", "scale"),
)
class AdaIN(Norm):
    """Give each channel of the content the mean and the standard deviation of the style's channel.

    For style transfer with one pass. Where a network makes the style's gain and shift, take ``adain-modulated``.

    With m and v mean and variance over space, per sample and channel,

        y = s(style) * (content - m(content)) / sqrt(v(content) + eps) + m(style)

    where s = sqrt(v) without eps. ``unbiased=True`` is the widely used PyTorch port: variances are divided by (count -
    1) and s = sqrt(v + eps).

    Args:
        num_features: C.
        eps: added to the variance under the root.
        unbiased: the port's variances in place of the authors'.

    Input content ``(N, C, *space)`` and style ``(N, C, *its own space)``.

    Arbitrary Style Transfer in Real-time with Adaptive Instance Normalization (Huang, Belongie, 2017), arXiv
    1703.06868.

    Differs from the authors' code in: the gradient through the deviation of a constant style channel is 0, not
    infinite.
    """

    def __init__(self, num_features: int, *, eps: float = 1e-5, unbiased: bool = False):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.unbiased = bool(unbiased)

    def forward(self, content: Tensor, style: Tensor) -> Tensor:
        """Give ``content`` the statistics of ``style``."""
        check.channels_first(self, content, self.num_features, 3, name="content")
        check.floating(self, style, "style")
        space = style.shape[2:] if style.dim() > 2 else (None,)
        check.shape(self, "style", style, (*content.shape[:2], *space), content)
        own, target = ops.instance_moments(content), ops.instance_moments(style)
        if self.unbiased:
            var, gain = own.unbiased(), statistics.root(target.unbiased() + self.eps)
        else:
            var, gain = own.var, statistics.root(target.var)
        return ops.normalize_with(content, own.mean, var, gain, target.mean, eps=self.eps)
