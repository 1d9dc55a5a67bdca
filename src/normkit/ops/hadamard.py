"""Hadamard matrices: entries of +1 and -1, rows at right angles."""

from __future__ import annotations

import functools

import torch
from torch import Tensor


def hadamard(order: int) -> Tensor:
    """Return a Hadamard matrix H divided by the root of its order, in float64, so that H Hᵀ = I.

    A power of 2 gives Sylvester's. Else, with ``order`` = 2^k m, m odd, the largest i < k is taken for which M =
    order / 2^i has one of Paley's constructions, and the result is Sylvester's matrix of order 2^i times it,
    Kronecker's way. There is none of odd order above 1, nor where neither M - 1 nor M / 2 - 1 is a prime of the right
    kind: ValueError.

    >>> hadamard(4) * 2
    tensor([[ 1.,  1.,  1.,  1.],
            [ 1., -1.,  1., -1.],
            [ 1.,  1., -1., -1.],
            [ 1., -1., -1.,  1.]], dtype=torch.float64)
    """
    signs = _signs(order)
    if signs is None:
        lower = next(n for n in range(order, 0, -1) if _signs(n) is not None)
        upper = next(n for n in range(order, 2 * order + 1) if _signs(n) is not None)
        raise ValueError(f"hadamard: no matrix of order {order} is built; the nearest that are: {lower} and {upper}")
    return signs / order**0.5


@functools.lru_cache(maxsize=16)
def _signs(order: int) -> Tensor | None:
    twos = (order & -order).bit_length() - 1
    if order == 1 << twos:
        return _sylvester(order)
    for i in range(twos - 1, -1, -1):
        core = _paley(order >> i)
        if core is not None:
            return torch.kron(_sylvester(1 << i), core)
    return None


def _sylvester(order: int) -> Tensor:
    signs = torch.ones(1, 1, dtype=torch.float64)
    while len(signs) < order:
        signs = torch.cat([torch.cat([signs, signs], 1), torch.cat([signs, -signs], 1)])
    return signs


def _paley(order: int) -> Tensor | None:
    """Paley's first construction for a prime 3 mod 4, his second for a prime 1 mod 4, or None."""
    eye = functools.partial(torch.eye, dtype=torch.float64)
    first, second = order - 1, order // 2 - 1
    if first % 4 == 3 and _is_prime(first):
        return eye(order) + _border(first, -1)
    if order % 2 == 0 and second % 4 == 1 and _is_prime(second):
        inner = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
        diagonal = torch.tensor([[1.0, -1.0], [-1.0, -1.0]], dtype=torch.float64)
        return torch.kron(_border(second, 1), inner) + torch.kron(eye(order // 2), diagonal)
    return None


def _border(q: int, column: int) -> Tensor:
    """Legendre symbols of (i - j) mod q, with a first row of 1, a first column of ``column`` and 0 in the corner."""
    squares = torch.arange(q).square() % q
    symbol = torch.full((q,), -1.0, dtype=torch.float64)
    symbol[squares] = 1.0
    symbol[0] = 0.0
    at = torch.arange(q)
    whole = torch.ones(q + 1, q + 1, dtype=torch.float64)
    whole[1:, 1:] = symbol[(at.unsqueeze(1) - at) % q]
    whole[1:, 0] = column
    whole[0, 0] = 0.0
    return whole


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))
