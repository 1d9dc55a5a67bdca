"""Cross-modal AdaIN: the token statistics of an image prompt, given to the text's attention output."""

from __future__ import annotations

from torch import Tensor

from normkit import check, statistics
from normkit.catalog import method
from normkit.norm import Norm

CONSTANT = "the authors' layer has no eps: a channel that is constant over the tokens is 0 / 0"


@method(
    "cross-modal-adain",
    paper="StyleStudio: Text-Driven Style Transfer with Selective Control of Style Elements (Lei et al., 2024), "
    "arXiv 2412.08503",
    shape="N L C",
    over="L",
    inputs={"style": "N Ls C"},
    invariant=("shift", "scale"),
    exempt={
        **dict.fromkeys(("extremes zeros", "extremes ones", "extremes huge"), CONSTANT),
        **dict.fromkeys(("extremes offset bfloat16", "extremes offset float16"), f"{CONSTANT}, as rounding makes it"),
        **dict.fromkeys(
            ("extremes tiny float32", "extremes tiny bfloat16", "extremes tiny float16"),
            "the authors' layer has no eps: the squares of 1e-20 are 0 in float32, and 0 / 0 follows",
        ),
    },
)
class CrossModalAdaIN(Norm):
    """Give each feature of the content's tokens the mean and the standard deviation over the style's tokens.

    For diffusion models with a text and an image prompt, in place of the sum of the two attention outputs. With m the
    mean and s the unbiased standard deviation over tokens, per sample and feature,

        y = (content - m(content)) / s(content) * s(style) + m(style)

    There is no eps: a feature that is constant over the content's tokens gives NaN, as in the authors' code.

    Args:
        num_features: C.

    Input content ``(N, L, C)``, the output of the text's cross-attention with its heads merged, and style ``(N, Ls,
    C)``, that of the image prompt's.

    StyleStudio: Text-Driven Style Transfer with Selective Control of Style Elements (Lei et al., 2024), arXiv
    2412.08503.
    """

    def __init__(self, num_features: int):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)

    def forward(self, content: Tensor, style: Tensor) -> Tensor:
        """Give ``content`` the token statistics of ``style``."""
        check.values(self, "content", content, (None, None, self.num_features), content)
        check.values(self, "style", style, (content.shape[0], None, self.num_features), content)
        own, target = statistics.moments(content, (1,)), statistics.moments(style, (1,))
        scale = statistics.root(target.unbiased()) / statistics.root(own.unbiased())
        y = (statistics.accurate(content) - own.mean.unsqueeze(1)) * scale.unsqueeze(1) + target.mean.unsqueeze(1)
        return y.to(content.dtype)
