"""How much a function changes between near points."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.manifold._slopes import squared_distances
from normkit.statistics import full_precision, reals


@method(
    "laplacian-penalty",
    paper="Learning Globally Smooth Functions on Manifolds (Cervino et al., 2023), ICML, arXiv 2210.00301",
    shape="N C",
    over="N",
    inputs={"x": "N +"},
    example={"t": 1.0},
    exempt={"gradcheck": "the points are constants"},
)
def laplacian_penalty(f: Tensor, x: Tensor, *, t: float, normalize: bool = False) -> Tensor:
    """Sum the squared changes of a function over pairs of points, weighted by how near the points are.

    For functions that are to be smooth on the manifold of the data, also where there are no labels. With
    A_ij = exp(-|x_i - x_j|^2 / (4 t)), zeros on the diagonal, and degrees D = diag(A 1),

        tr(fᵀ L f),    L = D - A,    or I - D^(-1/2) A D^(-1/2)

    Args:
        f: values at the points, (N, C).
        x: the points, (N, ...); they carry no gradient.
        t: the width of the kernel.
        normalize: take the second L; a point without neighbours counts alone there.

    Returns a single number. Learning Globally Smooth Functions on Manifolds (Cervino et al., 2023), arXiv 2210.00301.
    """
    values = reals("laplacian-penalty", "f", f, (None, None))
    check.floating("laplacian-penalty", x, "x")
    check.values("laplacian-penalty", "x", x, (len(f), *x.shape[1:]), f)
    t = check.number("laplacian-penalty", "t", t, 0.0, open_low=True)
    near = torch.exp(-squared_distances(x) / (4 * t)).to(values.dtype).fill_diagonal_(0)
    degree = near.sum(1)
    if normalize:
        scale = torch.where(degree > 0, degree, 1).rsqrt()
        near, degree = near * scale * scale.unsqueeze(1), torch.ones_like(degree)
    else:
        values = values - values.mean(0)  # it changes nothing but the digits that a large mean would take
    with full_precision(f):
        penalty = (degree.unsqueeze(1) * values.square()).sum() - (values * (near @ values)).sum()
    return penalty.to(f.dtype)
