"""The local dimension: of how many dimensions the points around a point are."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.loss._neighbours import ESTIMATORS, dimensions


@method(
    "local-dimension",
    paper="LDReg: Local Dimensionality Regularized Self-Supervised Learning (Huang et al., 2024), arXiv 2401.10474",
    shape="4N +",
    over="4N",
    inputs={"reference": "8N +"},
    invariant=("shift", "scale", "rotation"),
    exempt={"gradcheck": "the reference is a constant"},
)
def local_dimension(data: Tensor, reference: Tensor, *, k: int = 20, estimator: str = "moments") -> Tensor:
    """Estimate how fast the number of neighbours grows with their distance, around each point.

    For features that may have collapsed: a net that embeds in hundreds of dimensions may use three around each sample.
    With a_0 <= a_1 <= ... the distances of a row to all of the reference, a_0 its own, and m the mean of a_1 to
    a_(k-1),

        moments m / (a_k - m),   moments-eps m / (a_k - m + 1e-4),   mle -k / sum_(j=1..k-1) log(a_j / a_k + 1e-4)

    Neighbours that are all equally far give infinity by moments, a large number by moments-eps and a negative one by
    mle. k is at most the number of rows of ``data`` less 2. The constants of the last two are the authors' code's.

    Args:
        data: (N, ...), at least 4 rows.
        reference: (M, ...), which holds the rows of ``data``; else the nearest neighbour of each is lost. A constant.
        k: which neighbour ends the neighbourhood.
        estimator: which of the three.

    Returns (N,). LDReg (Huang et al., 2024), arXiv 2401.10474.
    """
    k = check.size("local-dimension", "k", k, least=2)
    check.choice("local-dimension", "estimator", estimator, ESTIMATORS)
    return dimensions("local-dimension", data, reference, k, estimator).to(data.dtype)
