"""Alignment and uniformity: how features lie on the sphere."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.activation.token import _sphere
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate


@method(
    "alignment-uniformity",
    paper="Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere "
    "(Wang, Isola, 2020), arXiv 2005.10242, as in GenD (Yermakov et al., 2025), arXiv 2508.06248",
    shape="N C",
    inputs={"labels": "N : index 3"},
)
class AlignmentUniformity(Method):
    """Measure how close unit vectors of one label are, and how evenly all of them are spread.

    For training features on a sphere with labels. Alignment alone lets each class fall onto a point and uniformity
    alone knows no class, so both are weighed. With two views of an image as the pair, give both one label; for a
    classifier with these terms take ``hyperspherical-head``.

    Two losses for features on a sphere that pull against each other, over pairs i < j of a batch:

        alignment  = mean over pairs of one label of ||f_i - f_j||^alpha
        uniformity = log(max(1e-6, mean over all pairs of exp(-temperature ||f_i - f_j||²)))

    Without a pair of one label the alignment is 0; below a mean of 1e-6 the uniformity sends no gradient, and of fewer
    than two samples it is log(1e-6).

    Args:
        alpha: power of the distances.
        temperature: of the Gaussian kernel.

    ``loss(features, labels)``: unit vectors (N, D), which are not normalized here, and int64 (N,) -> (alignment,
    uniformity), two single numbers.

    Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere (Wang, Isola,
    2020), arXiv 2005.10242. It has the form of GenD (Yermakov et al., 2025), arXiv 2508.06248, where equal labels, not
    two views of an image, make a pair.
    """

    def __init__(self, *, alpha: float = 2.0, temperature: float = 2.0):
        super().__init__()
        self.alpha = check.number(self, "alpha", alpha, 0, open_low=True)
        self.temperature = check.number(self, "temperature", temperature, 0)

    def forward(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return alignment and uniformity."""
        check.values(self, "features", features, (None, None), features)
        check.index(self, "labels", labels, features.shape[:1], 2**63, features)
        exact = accurate(features)
        first = _sphere.alignment(exact, labels, self.alpha)
        return first.to(features.dtype), _sphere.uniformity(exact, self.temperature).to(features.dtype)
