"""The linear minimization oracle: the steepest direction in a norm."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._matrices import newton_schulz
from normkit.gradient._muon import DTYPES
from normkit.ops.polar import MUON

NORMS = ("auto", "spectral", "spectral-conv", "column", "row", "sign", "rms")
AXES = {"spectral": (2,), "spectral-conv": (3, 4), "column": (2,), "row": (2,), "rms": range(1 << 10)}
TINY = 1e-8


@method(
    "lmo",
    paper="Training Deep Learning Models with Norm-Constrained LMOs (Pethick et al., 2025), arXiv 2502.07529",
    shape="N C",
    over="N C",
    example={"norm": "row"},
)
def lmo(
    x: Tensor,
    *,
    norm: str = "spectral",
    normalized: bool | None = None,
    transpose: bool = False,
    at_least_one: bool = False,
    ns_dtype: str | None = "bfloat16",
) -> Tensor:
    """Return the direction of length 1 in a norm that a gradient falls along most, up to its sign.

    For an optimizer of your own, or for looking at what ``scion`` steps along in a layer. To train a model take Scion
    itself; ``polar-factor`` has more ways to the spectral direction.

    For x of r rows and c columns, (out, in), and NS Muon's five rounds,

        "spectral":       NS(x) sqrt(r / c), or sqrt(r) if not normalized
        "spectral-conv":  NS(x as (out, rest)) sqrt(out / in) / k, or / k^2, of kernels (out, in, k) or (out, in, k, k)
        "column":         x / (f + 1e-8), f the root mean square of each column, times c if normalized
        "row":            x / (f + 1e-8), f the length of each row, times sqrt(c) if normalized
        "sign":           sign(x) / c, or sign(x) if not normalized
        "rms":            x / (root mean square along the first axis + 1e-8)

    and ``"auto"`` is ``"rms"`` for vectors, ``"spectral"`` for matrices, ``"spectral-conv"`` for kernels.

    Args:
        x: a gradient, or its momentum.
        norm: one of the above.
        normalized: None: all but ``"column"`` are.
        transpose: take x as (in, out), as embeddings are stored.
        at_least_one: let the factor of ``"spectral"`` be no less than 1.
        ns_dtype: the type that NS is worked out in, as a word; None: that of x.

    Norm-Constrained LMOs (Pethick et al., 2025), arXiv 2502.07529.
    """
    check.choice("lmo", "norm", norm, NORMS)
    check.choice("lmo", "ns_dtype", ns_dtype, (None, *DTYPES))
    check.floating("lmo", x)
    kind = norm_of(x, norm)
    if not x.numel():
        return x.clone()
    x = x.mT if transpose and x.dim() == 2 else x
    scaled = kind != "column" if normalized is None else normalized
    if kind in ("spectral", "spectral-conv"):
        y = orthogonal(x, ns_dtype) * spectral_factor(x, kind, scaled, at_least_one)
    elif kind == "sign":
        y = x.sign() / (x.shape[-1] if scaled else 1)
    else:
        y = x / (sizes(x, kind, scaled) + TINY)
    return y.mT if transpose and x.dim() == 2 else y


def norm_of(x: Tensor, norm: str) -> str:
    """The norm that is meant for a tensor, which must have its number of axes."""
    kind = norm
    if norm == "auto":
        kind = {0: "rms", 1: "rms", 2: "spectral", 3: "spectral-conv", 4: "spectral-conv"}.get(x.dim(), "spectral")
    if x.dim() not in AXES.get(kind, range(1, 1 << 10)):
        raise ValueError(f"lmo: norm={norm!r} takes no tensor of shape {tuple(x.shape)}")
    return kind


def orthogonal(x: Tensor, dtype: str | None) -> Tensor:
    """Muon's direction of a matrix, or of a kernel as one."""
    matrix = x.flatten(1) if dtype is None else x.flatten(1).to(getattr(torch, dtype))
    return newton_schulz(matrix, [MUON] * 5).reshape(x.shape).to(x.dtype)


def spectral_factor(x: Tensor, kind: str, normalized: bool, at_least_one: bool) -> float:
    """What a matrix with singular values of 1 is multiplied by."""
    rows, columns = x.shape[:2]
    if kind == "spectral-conv":
        return math.sqrt(rows / columns) / x.shape[2:].numel()
    factor = math.sqrt(rows / columns if normalized else rows)
    return max(1.0, factor) if at_least_one else factor


def sizes(x: Tensor, kind: str, normalized: bool) -> Tensor:
    """What divides each column, each row or each vector."""
    if kind == "row":
        return torch.linalg.vector_norm(x, dim=1, keepdim=True) * (math.sqrt(x.shape[1]) if normalized else 1)
    root = x.square().mean(0, keepdim=True).sqrt()
    return root * x.shape[1] if kind == "column" and normalized else root
