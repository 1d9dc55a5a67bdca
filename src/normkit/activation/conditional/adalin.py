"""AdaLIN: a learned blend of layer and instance normalization, with a style's gain and shift."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.activation._layer_instance import LayerInstanceNorm
from normkit.catalog import method


@method(
    "adalin",
    paper="U-GAT-IT: Unsupervised Generative Attentional Networks with Adaptive Layer-Instance Normalization "
    "for Image-to-Image Translation (Kim et al., 2019), arXiv 1907.10830",
    shape="N C +",
    over="C +",
    aliases=("adaptive-layer-instance-norm",),
    inputs={"gamma": "N C", "beta": "N C"},
    invariant=("shift", "scale"),
)
class AdaLIN(LayerInstanceNorm):
    """Blend instance and layer normalization by a learned share per channel, then apply a style's gain and shift.

    For image translation: rho near 1 keeps the content's channels apart, rho near 0 lets the whole image's style
    through. With a the instance norm and l the layer norm of x, over space and over channels and space, both with the
    UNBIASED variance,

        y = gamma * (rho * a + (1 - rho) * l) + beta

    ``rho`` (C,) starts at 0.9 and is used as it is; the training loop calls :meth:`clip_rho` after every optimizer
    step.

    Args:
        num_features: C.
        eps: added to both variances under the root.

    Input x ``(N, C, *space)``, gamma and beta ``(N, C)``, made from the style by another network.

    U-GAT-IT: Unsupervised Generative Attentional Networks with Adaptive Layer-Instance Normalization for Image-to-Image
    Translation (Kim et al., 2019), arXiv 1907.10830.
    """

    def __init__(self, num_features: int, *, eps: float = 1e-5):
        super().__init__(num_features, eps, rho=0.9)

    def forward(self, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        """Normalize ``x`` and modulate each channel with ``gamma`` and ``beta``."""
        check.channels_first(self, x, self.num_features, 3)
        check.values(self, "gamma", gamma, x.shape[:2], x)
        check.values(self, "beta", beta, x.shape[:2], x)
        return self._blend(x, gamma, beta)
