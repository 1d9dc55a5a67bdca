"""The loss on a plane through the weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.probe.hessian_criteria import PAPER
from normkit.statistics import accurate, full_precision


@method(
    "loss-plane",
    paper=PAPER,
    shape="C",
    inputs={"first": "C", "second": "C", "hessian": "C C : definite", "slope": "C", "a": "L", "b": "S"},
)
def loss_plane(
    point: Tensor, first: Tensor, second: Tensor, hessian: Tensor, slope: Tensor, a: Tensor, b: Tensor
) -> Tensor:
    """Take a quadratic loss on the plane that two directions span at a point.

    For seeing what the loss of a model would look like were its curvature all there is; :func:`plane` takes any loss.
    With L(x) = x^T H x / 2 + slope^T x,

        loss_ij = L(point + a_i first + b_j second)

    Args:
        point: the weights, (n,).
        first: a direction, (n,): an eigenvector of the Hessian, or a random one, normalized by filters.
        second: the other.
        hessian: H, (n, n).
        slope: the gradient at zero, (n,).
        a: how far along the first, (A,).
        b: how far along the second, (B,).

    Returns the loss, (A, B).

    Investigating generalization capabilities (Gabdullin, 2024), arXiv 2412.10146.
    """
    check.values("loss_plane", "point", point, (None,), point)
    size = len(point)
    tensors = {"first": first, "second": second, "hessian": hessian, "slope": slope, "a": a, "b": b}
    shapes = {"hessian": (size, size), "a": (None,), "b": (None,)}
    for name, value in tensors.items():
        check.values("loss_plane", name, value, shapes.get(name, (size,)), point)
    start = accurate(point)
    first, second, hessian, slope, a, b = (value.to(start.dtype) for value in tensors.values())
    cells = start + a[:, None, None] * first + b[:, None] * second
    with full_precision(point):
        return ((cells @ hessian * cells).sum(-1) / 2 + cells @ slope).to(point.dtype)


@torch.no_grad()
def plane(
    loss: Callable[[Tensor], Tensor],
    point: Tensor,
    first: Tensor,
    second: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    chunk: int = 1,
) -> Tensor:
    """Return any loss of flat weights on a plane, ``chunk`` cells at once.

    >>> x, y = torch.eye(2)
    >>> plane(lambda at: at.prod(), torch.zeros(2), x, y, torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    tensor([[3., 4.],
            [6., 8.]])
    """
    rows, columns = torch.meshgrid(a, b, indexing="ij")
    cell = torch.vmap(lambda i, j: loss(point + i * first + j * second), chunk_size=chunk)
    return cell(rows.flatten(), columns.flatten()).view(rows.shape)
