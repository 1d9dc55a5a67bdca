"""The Laplacian of vectors on a graph, which turns a neighbour's frame into one's own."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import reals

NORMALIZATIONS = (None, "rw")


@method(
    "connection-laplacian",
    paper="Implicit Gaussian process representation of vector fields over arbitrary latent manifolds (Peach et al., "
    "2024), ICLR, arXiv 2309.16746",
    shape="N N",
    over="N",
    inputs={"connection": "2N 2N"},
)
def connection_laplacian(adjacency: Tensor, connection: Tensor, *, normalization: str | None = None) -> Tensor:
    """Put transports between tangent frames into the blocks of a graph's Laplacian.

    For vector fields on a manifold that is known by points. For numbers at nodes, not vectors, the plain Laplacian of
    the graph does.

    With L = diag(A 1) - A,

        block (i, j) = L_ij connection_ij,    block (i, i) = L_ii I

    ``"rw"`` divides the rows of a node by the number of its edges.

    Args:
        adjacency: A (n, n), symmetric, with zeros on the diagonal.
        connection: (n d, n d), block (i, j) the orthogonal transport between the frames at i and j.
        normalization: None or ``"rw"``.

    Returns (n d, n d). Implicit Gaussian process representation of vector fields (Peach et al., 2024), arXiv
    2309.16746.
    """
    a = reals("connection-laplacian", "adjacency", adjacency, (None, None))
    n = check.size("connection-laplacian", "the number of nodes", len(a))
    turns = reals("connection-laplacian", "connection", connection, (None, None), adjacency)
    normalization = check.choice("connection-laplacian", "normalization", normalization, NORMALIZATIONS)
    if a.shape[1] != n or turns.shape[0] != turns.shape[1] or turns.shape[0] % n:
        raise ValueError(
            f"connection-laplacian: adjacency must be (n, n) and connection (n d, n d), but they are "
            f"{tuple(adjacency.shape)} and {tuple(connection.shape)}"
        )
    return _blocks(a, turns, normalization).to(adjacency.dtype)


def _blocks(a: Tensor, turns: Tensor, normalization: str | None) -> Tensor:
    n, d = len(a), len(turns) // len(a)
    laplacian = torch.diag(a.sum(1)) - a
    same = torch.eye(n, dtype=torch.bool, device=a.device)[:, None, :, None]
    own = torch.eye(d, dtype=turns.dtype, device=a.device)[None, :, None, :]
    blocks = laplacian[:, None, :, None] * torch.where(same, own, turns.reshape(n, d, n, d))
    if normalization == "rw":
        blocks = blocks / (a != 0).sum(1).clamp(min=1)[:, None, None, None]
    return blocks.reshape(n * d, n * d)
