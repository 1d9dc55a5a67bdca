"""FAdaIN: AdaIN inside masks, blended with the content."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from normkit import check, ops, statistics
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "fadain",
    paper="TSIT: A Simple and Versatile Framework for Image-to-Image Translation (Jiang et al., 2020), "
    "arXiv 2007.12072",
    shape="N C H W",
    over="H W",
    inputs={"style": "N C Hs Ws", "content_mask?": "N 1 h w : mask", "style_mask?": "N 1 h w : mask"},
)
class FAdaIN(Norm):
    """Give the masked part of the content the mean and deviation of the masked part of the style; blend by alpha.

    For image translation with a style stream, where masks may say which pixels give the style and which take it. Its
    counterpart for the content stream is ``fade``; for whole images without a mask ``adain`` is enough.

    Feature-adaptive instance normalization. With m the mean and s = sqrt(unbiased variance + eps) over space, or over
    the ``n = sum(mask)`` masked pixels,

        t = (content - m(content)) / s(content) * s(style) + m(style)
        t = mask * t + (1 - mask) * content          where there is a content mask
        y = alpha * t + (1 - alpha) * content

    A style mask alone changes the statistics alone. A mask must hold more than one pixel: the mean is divided by n, the
    variance by (n - 1).

    Args:
        num_features: C.
        eps: added to the variances under the root.
        alpha: share of the translated content, in [0, 1].

    Input content ``(N, C, H, W)``, style ``(N, C, Hs, Ws)``, masks ``(N, 1, h, w)``, floating point or boolean, resized
    to the nearest entry.

    TSIT: A Simple and Versatile Framework for Image-to-Image Translation (Jiang et al., 2020), arXiv 2007.12072.
    """

    def __init__(self, num_features: int, *, eps: float = 1e-5, alpha: float = 1.0):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.alpha = check.number(self, "alpha", alpha, 0, 1)

    def forward(
        self, content: Tensor, style: Tensor, content_mask: Tensor | None = None, style_mask: Tensor | None = None
    ) -> Tensor:
        """Give ``content`` the statistics of ``style``, inside the masks where there are any."""
        check.channels_first(self, content, self.num_features, 4, 4, name="content")
        check.values(self, "style", style, (*content.shape[:2], None, None), content)
        inside = self._resize("content_mask", content_mask, content)
        style_inside = self._resize("style_mask", style_mask, style)
        mean, var = _moments(content, inside)
        style_mean, style_var = _moments(style, style_inside)
        exact = statistics.accurate(content)
        t = ops.normalize_with(exact, mean, var, statistics.root(style_var + self.eps), style_mean, eps=self.eps)
        if inside is not None:
            t = t * inside + exact * (1 - inside)
        return torch.lerp(exact, t, self.alpha).to(content.dtype)

    def _resize(self, name: str, mask: Tensor | None, map: Tensor) -> Tensor | None:
        if mask is None:
            return None
        check.shape(self, name, mask, (map.shape[0], 1, None, None), map)
        if not (mask.is_floating_point() or mask.dtype is torch.bool):
            raise TypeError(f"FAdaIN: {name} must be a floating-point or boolean tensor, not {mask.dtype}")
        return F.interpolate(mask.to(statistics.accurate(map).dtype), size=map.shape[2:], mode="nearest")


def _moments(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and unbiased variance over space, each value weighed by the mask; of shape (N, C)."""
    x = statistics.accurate(x)
    if mask is None:
        moments = ops.instance_moments(x)
        return moments.mean, moments.unbiased()
    count = mask.sum((2, 3))
    mean = (x * mask).sum((2, 3)) / count
    square = (x - mean[..., None, None]).square() * mask
    return mean, square.sum((2, 3)) / (count - 1)
