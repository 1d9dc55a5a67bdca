"""Vectors diffused along the edges of a graph, their lengths kept."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import full_precision, reals, root


@method(
    "vector-diffusion",
    paper="Implicit Gaussian process representation of vector fields over arbitrary latent manifolds (Peach et al., "
    "2024), ICLR, arXiv 2309.16746",
    shape="N 2",
    over="N",
    inputs={"connection_laplacian": "2N 2N : definite", "laplacian": "N N : definite"},
    example={"t": 0.5},
)
def vector_diffusion(
    x: Tensor, connection_laplacian: Tensor, laplacian: Tensor, *, t: float, normalize: bool = True
) -> Tensor:
    """Diffuse vectors by the heat of their connection Laplacian, and give them the lengths that heat gives to lengths.

    For smoothing a vector field at points of a manifold, each vector in a frame of its own, where a plain average would
    mix the frames. It takes exponentials of whole matrices, whose cost is the cube of the number of points. For the
    field at new points take ``manifold-kernel``.

    Diffused vectors shrink where they disagree; the lengths are therefore diffused as numbers, by the plain Laplacian.

        y = exp(-t Lc) x,    out = y (exp(-t L) |x|) / (exp(-t L) 1 |y|)

    Args:
        x: a vector at each node, in its own frame, (n, d).
        connection_laplacian: Lc (n d, n d), of ``connection-laplacian``.
        laplacian: L (n, n), of which lengths are diffused.
        t: how long.
        normalize: give vectors those lengths; otherwise return y.

    A vector that becomes 0 stays 0. Implicit Gaussian process representation of vector fields (Peach et al., 2024),
    arXiv 2309.16746.
    """
    wide = reals("vector-diffusion", "x", x, (None, None))
    many = wide.numel()
    vectors = reals("vector-diffusion", "connection_laplacian", connection_laplacian, (many, many), x)
    plain = reals("vector-diffusion", "laplacian", laplacian, (len(x), len(x)), x)
    t = check.number("vector-diffusion", "t", t, 0.0)
    with full_precision(x):
        y = (torch.linalg.matrix_exp(-t * vectors) @ wide.reshape(-1)).reshape(wide.shape)
        if normalize:
            heat = torch.linalg.matrix_exp(-t * plain)
            length = root(y.square().sum(1))
            target = heat @ root(wide.square().sum(1)) / heat.sum(1)
            y = y * (target / torch.where(length > 0, length, 1)).unsqueeze(1)
    return y.to(x.dtype)
