"""TurboQuant: a vector as its norm and the codes of its rotated direction."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.quant.turboquant_codebook import PAPER, PROVENANCE, points
from normkit.statistics import accurate, full_precision


class Codes(NamedTuple):
    """The decoded vector, the codes of its direction (int64), and its norm (..., 1)."""

    y: Tensor
    indices: Tensor
    norm: Tensor


class InnerCodes(NamedTuple):
    """The same, with the signs of the rest's sketch, and the rest's norm."""

    y: Tensor
    indices: Tensor
    norm: Tensor
    signs: Tensor
    residual_norm: Tensor


@method(
    "turboquant",
    paper=PAPER,
    evidence="equations",
    shape="... C",
    over="C",
    example={"bits": 2},
    provenance=PROVENANCE,
    exempt={
        "gradcheck": "the gradient is that of the identity",
        "moves": "the rotation is drawn once, and the codebook fixed",
    },
)
class TurboQuant(Method):
    """Store a vector in few bits a coordinate: its norm, and codes of its direction after a fixed random rotation.

    For caches and indexes of vectors, without data to fit.

    With n = ||x|| and u = R x / n, each coordinate of u has the same known density, so one codebook serves all: the
    code is its nearest point, and y = n R' points[code]. With ``inner`` one of the bits goes to a sketch of what is
    left, r = (x - y) / n: s = sign(S r), and

        y + n sqrt(pi / 2) / dim ||r|| S' s

    which is a worse vector, but an inner product with any other is right on average.

    Args:
        dim: size of the last axis, at least 2.
        bits: of a coordinate.
        inner: keep inner products unbiased.

    Returns ``y``, ``indices``, ``norm``, with ``inner`` also ``signs`` and ``residual_norm``. State: ``rotation``
    (dim, dim), ``codebook`` (2^bits,), or half as many with ``inner``, and then ``projection`` (dim, dim). A vector of
    zeros is decoded as zeros. Gradients pass as they are.

    TurboQuant (Zandieh et al., 2025), arXiv 2504.19874.
    """

    rotation: Tensor
    codebook: Tensor
    projection: Tensor

    def __init__(self, dim: int, *, bits: int, inner: bool = False):
        super().__init__()
        self.dim = check.size(self, "dim", dim, least=2)
        self.bits, self.inner = check.size(self, "bits", bits, most=8), bool(inner)
        orthogonal, upper = torch.linalg.qr(accurate(torch.randn(dim, dim)))
        own = torch.tensor(points(self.dim, self.bits - self.inner), dtype=torch.get_default_dtype())
        self.register_buffer("rotation", (orthogonal * upper.diagonal().sign()).to(own))
        self.register_buffer("codebook", own)
        if self.inner:
            self.register_buffer("projection", torch.randn(dim, dim))

    def forward(self, x: Tensor) -> Codes | InnerCodes:
        """Return ``x`` (..., dim) as it is decoded, and its codes."""
        check.features_last(self, x, self.dim)
        with full_precision(x):
            coded = self._coded(x.detach())
        return coded._replace(y=coded.y + (x - x.detach()))

    @torch.no_grad()
    def _coded(self, x: Tensor) -> Codes | InnerCodes:
        wide = accurate(x)
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        unit = wide / torch.where(norm > 0, norm, 1)
        turn, book = self.rotation.to(wide.dtype), self.codebook.to(wide.dtype)
        cuts = (book[1:] + book[:-1]) / 2
        indices = torch.bucketize((unit @ turn.mT).contiguous(), cuts)
        direction = book[indices] @ turn
        if not self.inner:
            return Codes((norm * direction).to(x.dtype), indices, norm.to(x.dtype))
        rest = unit - direction
        length = torch.linalg.vector_norm(rest, dim=-1, keepdim=True)
        project = self.projection.to(wide.dtype)
        signs = torch.where(rest @ project.mT >= 0, 1.0, -1.0).to(wide.dtype)
        y = norm * (direction + math.sqrt(math.pi / 2) / self.dim * length * (signs @ project))
        return InnerCodes(*(v if v is indices else v.to(x.dtype) for v in (y, indices, norm, signs, length)))
