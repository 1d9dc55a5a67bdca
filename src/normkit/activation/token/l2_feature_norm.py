"""L2 feature normalization: features on a sphere."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.activation.token._unit import unit, unit_of_part
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.sharded import Parts, by_parts


@method(
    "l2-feature-norm",
    paper="Bi-directional Distribution Alignment for Transductive Zero-Shot Learning (Wang, 2023), arXiv 2303.08698",
    shape="... C",
    over="C",
    aliases=("l2norm",),
    invariant=("scale",),
    exempt={
        "extremes zeros": "a vector of zeros has no direction; the authors divide without an eps, and it gives NaN",
        "extremes tiny float16": "1e-20 is 0 in float16: a vector of zeros",
    },
)
class L2FeatureNorm(Norm):
    """Divide each vector by its length and multiply it by a radius; nothing is learned.

    For the generator of visual features in transductive zero-shot learning, where it takes the place of the final
    sigmoid, and for the real features in place of min-max scaling. Over the last axis,

        y = radius * x / norm(x)

    with no eps: however short, a vector is normalized fully, and one of zeros gives NaN.

    Args:
        radius: length of the result.

    Input ``(..., C)``.

    Bi-directional Distribution Alignment for Transductive Zero-Shot Learning (Wang et al., 2023), arXiv 2303.08698.

    Differs from the authors' code in: squares that would underflow or overflow are kept in range.
    """

    def __init__(self, *, radius: float = 1):
        super().__init__()
        self.radius = check.number(self, "radius", radius)

    @by_parts
    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        check.floating(self, x)
        if x.dim() == 0:
            raise ValueError("L2FeatureNorm: x must end in a feature axis, but it is a single number")
        return (self.radius * unit(x)).to(x.dtype)

    def over_parts(self, part: Parts) -> Tensor:
        """Normalize cut vectors."""
        return (self.radius * unit_of_part(part)).to(part.local.dtype)
