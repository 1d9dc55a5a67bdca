"""Polar factors of matrices by products alone: polynomials that bring all singular values to 1."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normkit.statistics import accurate

Triple = tuple[float, float, float]  # of the powers 1, 3 and 5

MUON: Triple = (3.4445, -4.775, 2.0315)
# The product of the a of all steps on one Gram matrix, whose rounding grows with its square, that float32 bears:
FIRST, LATER = 48.0, 16.0  # on the first one, and on later ones


def polar(
    x: Tensor,
    coefficients: Sequence[Triple] = (MUON,) * 5,
    *,
    safety: float = 1.0,
    eps: float = 1e-7,
    gram: bool | None = False,
) -> Tensor:
    """Bring the singular values of matrices (..., rows, columns) near 1, by an odd polynomial a step.

    With X = x / (safety |x| + eps) and (a, b, c) the coefficients of a step,

        A = X X^T,    X <- a X + (b A + c A A) X

    and of matrices with more rows than columns the same from the right, A = X^T X.

    Args:
        x: matrices, of the type that the products are taken in.
        coefficients: three numbers a step.
        safety: what the length of a matrix is multiplied by before it divides.
        eps: what is added to that.
        gram: work the same polynomial out on A, in fewer products for matrices twice as long as wide; those of half
            precision in float32, and not at all where products of float32 are lowered, by ``torch.autocast`` or
            ``torch.set_float32_matmul_precision``, nor in a graph of ``torch.compile``, which cannot ask. None: no.

    >>> polar(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), [(2.0, -1.5, 0.5)] * 12)
    tensor([[1., 0.],
            [0., 1.]])
    """
    shape, tall = x.shape, x.shape[-2] > x.shape[-1]
    dtype, gram = x.dtype, gram and shape[-2] != shape[-1] and _float32_is_whole(x.device)
    x = (accurate(x) if gram else x).reshape(-1, *shape[-2:])
    x = x / (x.norm(dim=(-2, -1), keepdim=True) * safety + eps).clamp(min=torch.finfo(x.dtype).tiny)
    alone = len(x) == 1  # a plain product is the faster one on CPU
    x, product = (x[0], torch.addmm) if alone else (x, torch.baddbmm)
    call = _by_gram if gram else _by_steps
    return call(x, coefficients, product, tall).reshape(shape).to(dtype)


def _float32_is_whole(device: torch.device) -> bool:
    """Whether products of float32 are known to be rounded to float32.

    Rounded to bfloat16, the small eigenvalues of A are wrong, and their directions come out up to 1e6 times too long.
    """
    if torch.compiler.is_compiling():  # a graph cannot ask for the precision
        return False
    try:
        return torch.get_float32_matmul_precision() == "highest" and not torch.is_autocast_enabled(device.type)
    except RuntimeError:  # the precision was set for one kind of device alone
        return False


def _by_steps(x: Tensor, coefficients: Sequence[Triple], product: Any, tall: bool) -> Tensor:
    """Multiply on the shorter side, so that nothing is turned and copied."""
    for a, b, c in coefficients:
        gram = x.mT @ x if tall else x @ x.mT
        factor = product(gram, gram, gram, beta=b, alpha=c)
        x = product(x, x, factor, beta=a) if tall else product(x, factor, x, beta=a)
    return x


def _by_gram(x: Tensor, coefficients: Sequence[Triple], product: Any, tall: bool) -> Tensor:
    for part in _parts(coefficients):
        gram = x.mT @ x if tall else x @ x.mT
        total: Any = None
        for step, (a, b, c) in enumerate(part, 1):
            factor = product(gram, gram, gram, beta=b, alpha=c)
            factor.diagonal(dim1=-2, dim2=-1).add_(a)
            total = factor if total is None else total @ factor
            if step < len(part):
                gram = factor @ gram @ factor
        x = x @ total if tall else total @ x
    return x


def _parts(coefficients: Sequence[Triple]) -> list[list[Triple]]:
    """Divide steps into those that are worked out on one Gram matrix.

    >>> [len(part) for part in _parts([MUON] * 8)]
    [3, 2, 2, 1]
    """
    parts: list[list[Triple]] = []
    growth, most = math.inf, FIRST
    for row in coefficients:
        growth *= abs(row[0])
        if growth > most or not parts:
            most = LATER if parts else FIRST
            growth = abs(row[0])
            parts.append([])
        parts[-1].append(row)
    return parts


CANS: tuple[Triple, ...] = (
    (8.4703, -25.1081, 18.6293),
    (4.1828, -3.1087, 0.5806),
    (3.9619, -2.9541, 0.5630),
    (3.2866, -2.4647, 0.5074),
    (2.2737, -1.6447, 0.4162),
)
CLOSE = 1 - 5e-6  # of the ends of an interval that is a point


@functools.lru_cache
def polar_express(steps: int, lower: float = 1e-3, safety: float = 1.01, cushion: float = 0.02) -> tuple[Triple, ...]:
    """The Polar Express: for each step the polynomial nearest to 1 on what the steps before have left of [lower, 1].

    All but the last have ``safety`` in them; an interval is taken no wider than from ``cushion`` times its end.

    >>> [round(a, 4) for a, _, _ in polar_express(5, 1e-3, 1.02)]
    [8.1566, 4.0429, 3.8917, 3.2858, 2.3465]
    """
    low, high, coefficients = lower, 1.0, []
    for step in range(steps):
        a, b, c = _nearest(max(low, cushion * high), high)
        if cushion * high > low:
            scale = 2 / (_at(low, a, b, c) + _at(high, a, b, c))
            a, b, c = a * scale, b * scale, c * scale
        if step < steps - 1:
            a, b, c = a / safety, b / safety**3, c / safety**5
        coefficients.append((a, b, c))
        low = _at(low, a, b, c)
        high = 2 - low
    return tuple(coefficients)


def _at(s: Any, a: float, b: float, c: float) -> Any:
    return a * s + b * s**3 + c * s**5


def _nearest(low: float, high: float) -> Triple:
    """The odd polynomial of degree 5 whose largest distance to 1 on an interval is least, by Remez' exchange."""
    if low / high > CLOSE:
        return 15 / 8 / high, -10 / 8 / high**3, 3 / 8 / high**5
    inner, error = ((3 * low + high) / 4, (low + 3 * high) / 4), math.inf
    for _ in range(100):
        points = np.array([low, *inner, high])
        rows = np.stack([points, points**3, points**5, [1, -1, 1, -1]], 1)
        a, b, c, now = np.linalg.solve(rows, np.ones(4))
        if abs(now - error) <= 1e-15:
            break
        root = math.sqrt(9 * b * b - 20 * a * c)
        inner, error = (math.sqrt((-3 * b - root) / (10 * c)), math.sqrt((-3 * b + root) / (10 * c))), now
    return float(a), float(b), float(c)


def halley(x: Tensor, steps: int, lower: float = 1e-3) -> Tensor:
    """Bring the singular values of matrices (..., rows, columns) to 1 by Halley's iteration, weighed for each step.

    >>> halley(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), 4).round(decimals=4)
    tensor([[1., 0.],
            [0., 1.]])
    """
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    one = torch.eye(x.shape[-2], dtype=x.dtype, device=x.device)
    low = lower
    for _ in range(steps):
        d = (4 * (1 - low**2) / low**4) ** (1 / 3)
        a = math.sqrt(1 + d) + math.sqrt(8 - 4 * d + 8 * (2 - low**2) / (low**2 * math.sqrt(1 + d))) / 2
        b = (a - 1) ** 2 / 4
        c, gram = a + b - 1, x @ x.mT
        x = torch.linalg.solve(one + c * gram, (a * one + b * gram) @ x)
        low = min(1.0, low * (a + b * low**2) / (1 + c * low**2))
    return x.mT if tall else x
