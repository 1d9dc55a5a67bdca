"""Polar factors of matrices by products alone: polynomials that bring all singular values to 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Triple = tuple[float, float, float]  # of the powers 1, 3 and 5

MUON: Triple = (3.4445, -4.775, 2.0315)
RESTART = 2  # steps on a Gram matrix that half precision bears


def polar(
    x: Tensor,
    coefficients: Sequence[Triple] = (MUON,) * 5,
    *,
    safety: float = 1.0,
    eps: float = 1e-7,
    gram: bool = False,
) -> Tensor:
    """Bring the singular values of matrices (..., rows, columns) near 1, by an odd polynomial a step.

    With X = x / (safety |x| + eps), its shorter side in front, and (a, b, c) the coefficients of a step,

        A = X X^T,    X <- a X + (b A + c A A) X

    Args:
        x: matrices, of the type that the products are taken in.
        coefficients: three numbers a step.
        safety: what the length of a matrix is multiplied by before it divides.
        eps: what is added to that.
        gram: work the same polynomial out on A, for matrices much longer than wide.

    >>> polar(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), [(2.0, -1.5, 0.5)] * 12)
    tensor([[1., 0.],
            [0., 1.]])
    """
    shape, tall = x.shape, x.shape[-2] > x.shape[-1]
    x = x.reshape(-1, *shape[-2:])
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) * safety + eps).clamp(min=torch.finfo(x.dtype).tiny)
    alone = len(x) == 1  # a plain product is the faster one on CPU
    x, product = (x[0], torch.addmm) if alone else (x, torch.baddbmm)
    call = _by_gram if gram and x.shape[-2] != x.shape[-1] else _by_steps
    x = call(x, coefficients, product)
    return (x.mT if tall else x).reshape(shape)


def _by_steps(x: Tensor, coefficients: Sequence[Triple], product: Any) -> Tensor:
    for a, b, c in coefficients:
        gram = x @ x.mT
        x = product(x, product(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _by_gram(x: Tensor, coefficients: Sequence[Triple], product: Any) -> Tensor:
    for part in (coefficients[:RESTART], coefficients[RESTART:]):
        gram, total = x @ x.mT, None
        for a, b, c in part:
            factor = product(gram, gram, gram, beta=b, alpha=c)
            factor.diagonal(dim1=-2, dim2=-1).add_(a)
            total = factor if total is None else total @ factor
            gram = factor @ gram @ factor
        x = x if total is None else total @ x
    return x
