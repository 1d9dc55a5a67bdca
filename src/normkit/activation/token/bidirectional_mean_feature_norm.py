"""Bidirectional mean feature normalization: an image and its mirror image, as one feature."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.activation.token._unit import unit
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "bidirectional-mean-feature-norm",
    paper="CORE-ReID: Comprehensive Optimization and Refinement through Ensemble Fusion (Nguyen, Prima, 2024)",
    shape="N C",
    over="C",
    inputs={"flipped": "N C"},
)
class BidirectionalMeanFeatureNorm(Norm):
    """Average the features of an image and of its mirror image and divide the mean by its length.

    For retrieval, such as re-identification of persons, when features are extracted: it cancels the direction of view.
    Per sample, over the features,

        m = (feature + flipped) / 2,    y = m / norm(m)

    The mean comes before the normalization, the two are not normalized on their own. There is no eps: features that are
    opposite give NaN.

    Inputs ``feature`` (N, C), of the images, and ``flipped`` (N, C), of the images mirrored along their width.

    CORE-ReID: Comprehensive Optimization and Refinement through Ensemble Fusion in Domain Adaptation for Person
    Re-Identification (Nguyen, Prima, 2024).

    Differs from the authors' code in: squares that would underflow or overflow are kept in range.
    """

    def __init__(self):
        super().__init__()

    def forward(self, feature: Tensor, flipped: Tensor) -> Tensor:
        """Join the two features."""
        check.values(self, "feature", feature, (None, None), feature)
        check.values(self, "flipped", flipped, feature.shape, feature)
        return unit((accurate(feature) + accurate(flipped)) / 2).to(feature.dtype)
