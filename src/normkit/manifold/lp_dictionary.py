"""Dictionaries whose codes are sparse, found without a penalty."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import beside
from normkit.manifold._points import have_full_rank
from normkit.statistics import full_precision, reals


@method(
    "lp-dictionary",
    paper="Complete Dictionary Learning via lp-norm Maximization (Shen et al., 2020), UAI, arXiv 2002.10043",
    evidence="equations",
    shape="C 3 : frame",
    over="",
    inputs={"data": "C 12"},
    exempt={"gradcheck": "a step of the power method carries no gradient"},
)
@torch.no_grad()
def lp_dictionary(atoms: Tensor, data: Tensor, *, p: float = 3) -> tuple[Tensor, Tensor]:
    """Move orthonormal atoms to where the p-th powers of the data's codes add up to more.

    For sparse codes of data in a square, complete dictionary, where the weight of an l1 penalty would have to be
    chosen. It has no more atoms than the data have dimensions: an overcomplete dictionary needs another method.

    Maximal high powers are sparse codes: nothing is penalized, and p above 2 is robust to noise, 3 most so. With
    C = AᵀY,

        objective = sum |C|^p,    G = p Y (sign(C) |C|^(p - 1))ᵀ = U S Vᵀ,    A <- U Vᵀ

    Some 10 to 50 steps from random orthonormal atoms, until they move by less than 1e-6.

    Args:
        atoms: A (n, l), orthonormal columns.
        data: Y (n, m); ``nk.create("lp-dictionary").whiten(data)`` makes any complete dictionary orthogonal.
        p: the power, at least 1; only one above 2 makes codes sparse.

    Returns the new atoms, and the objective of the old ones. No gradient. ``.error(atoms, dictionary)`` is 0 where both
    agree up to order and signs.

    Complete Dictionary Learning via lp-norm Maximization (Shen et al., 2020), arXiv 2002.10043.
    """
    a = reals("lp-dictionary", "atoms", atoms, (None, None))
    y = reals("lp-dictionary", "data", data, (len(a), None), atoms)
    if a.shape[1] > a.shape[0]:
        raise ValueError(f"lp-dictionary: atoms must be at most as many as their size, but are {tuple(a.shape)}")
    p = check.number("lp-dictionary", "p", p, 1.0)
    with full_precision(atoms):
        codes = a.mT @ y
        gradient = p * y @ (codes.sign() * codes.abs() ** (p - 1)).mT
        u, _, v = torch.linalg.svd(gradient, full_matrices=False)
        return (u @ v).to(atoms.dtype), (codes.abs() ** p).sum().to(atoms.dtype)


@beside(lp_dictionary)
@torch.no_grad()
def error(atoms: Tensor, dictionary: Tensor) -> Tensor:
    """Return 1 - sum |AᵀD|^4 / n, which is 0 where n atoms are the dictionary's up to order and signs."""
    a = reals("lp-dictionary", "atoms", atoms, (None, None))
    d = reals("lp-dictionary", "dictionary", dictionary, (len(a), None), atoms)
    with full_precision(atoms):
        return (1 - (a.mT @ d).abs().pow(4).sum() / len(d)).to(atoms.dtype)


@beside(lp_dictionary)
@torch.no_grad()
def whiten(data: Tensor) -> Tensor:
    """Return sqrt(m) (Y Yᵀ)^(-1/2) Y, of data (n, m)."""
    y = reals("lp-dictionary", "data", data, (None, None))
    with full_precision(data):
        values, vectors = torch.linalg.eigh(y @ y.mT)
        if y.numel() and not have_full_rank(values):
            raise ValueError(f"lp-dictionary: data of rank below {len(y)} cannot be whitened")
        root = vectors * values.rsqrt() @ vectors.mT
        return (math.sqrt(y.shape[1]) * root @ y).to(data.dtype)
