"""The polar factor of a matrix: what remains when all singular values become 1."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, ops
from normkit.catalog import method
from normkit.gradient._muon import DTYPES, Coefficients, triples
from normkit.ops.polar import CANS, MUON, halley, polar_express
from normkit.statistics import accurate

METHODS = ("newton-schulz", "polar-express", "cans", "halley", "svd")
OWN = {"newton-schulz": (1.0, 1e-7), "polar-express": (1.01, 1e-7), "cans": (1.0, 0.0)}  # safety and eps


@method(
    "polar-factor",
    paper="The Polar Express: Optimal Matrix Sign Methods and Their Application to the Muon Algorithm (Amsel et al., "
    "2025), arXiv 2505.16932",
    shape="N C",
    over="N C",
    invariant=("scale",),
    example={"method": "svd"},
)
def polar_factor(
    x: Tensor,
    *,
    method: str = "newton-schulz",
    steps: int = 5,
    coefficients: Coefficients | None = None,
    lower: float = 1e-3,
    safety: float | None = None,
    eps: float | None = None,
    dtype: str | None = None,
) -> Tensor:
    """Bring all singular values of matrices to 1, nearly or exactly, and keep their singular vectors.

    For the direction that Muon steps along, outside of ``muon``, or for the nearest orthogonal matrix. A step can do
    with ``"newton-schulz"``; a weight that is to be orthogonal needs ``"svd"``, ``"halley"`` or enough steps of
    ``"polar-express"``.

    Of x = U S V^T, matrices (..., rows, columns), it is U V^T. Three methods take products alone. With the shorter side
    in front and X = x / (safety |x| + eps), in each step

        A = X X^T,    X <- a X + (b A + c A A) X

    - ``"newton-schulz"``: Muon's (a, b, c) in every step, which ends at 0.7 to 1.2.
    - ``"polar-express"``: the polynomials that are nearest to 1, each on what the one before has left of [lower, 1].
    - ``"cans"``: five of Chebyshev type, of which the last goes on.
    - ``"halley"``: a rational function a step, which needs a linear system, X = x / |x|.
    - ``"svd"``: exact.

    Singular values below ``lower`` |x| come out too small. Those that the rounding of a type has replaced come out in
    other directions.

    Args:
        x: matrices.
        method: one of the above.
        steps: how many; ``"svd"`` takes none.
        coefficients: three numbers, or a list of three a step of which the last goes on, in place of the method's.
        lower: the least singular value that is to reach 1, as a share of the length of x.
        safety: what the length is multiplied by before it divides; None: 1.01 for ``"polar-express"``, else 1.
        eps: added to that; None: 0 for ``"cans"``, else 1e-7.
        dtype: the type that it is worked out in, as a word; None: that of x. Systems and decompositions take float32
            at least, and so does ``"cans"``, whose polynomials diverge by half precision's rounding.

    The Polar Express (2025), arXiv 2505.16932; CANS (2025), arXiv 2506.10935; Halley's iteration: Nakatsukasa, Bai and
    Gygi (2010); Muon (Jordan et al., 2024), https://kellerjordan.github.io/posts/muon.
    """
    check.choice("polar-factor", "method", method, METHODS)
    check.choice("polar-factor", "dtype", dtype, (None, *DTYPES))
    check.size("polar-factor", "steps", steps, least=0, most=1000)
    check.number("polar-factor", "lower", lower, 0.0, 1.0, open_low=True)
    check.floating("polar-factor", x)
    if x.dim() < 2:
        raise ValueError(f"polar-factor: x must be matrices (..., rows, columns), not of shape {tuple(x.shape)}")
    z = x if dtype is None else x.to(getattr(torch, dtype))
    if not x.numel():
        return x.clone()
    if method in ("svd", "halley"):
        if coefficients is not None or safety is not None or eps is not None:
            raise ValueError(f"polar-factor: method={method!r} takes no coefficients, safety or eps")
        return (exact(accurate(z)) if method == "svd" else halley(accurate(z), steps, lower)).to(x.dtype)
    z = accurate(z) if method == "cans" else z
    multiplier, added = OWN[method]
    multiplier = multiplier if safety is None else check.number("polar-factor", "safety", safety, 0.0, open_low=True)
    added = added if eps is None else check.eps("polar-factor", eps)
    own = own_coefficients(method, lower, multiplier) if coefficients is None else coefficients
    return ops.polar(z, triples("polar-factor", own, steps, "coefficients"), safety=multiplier, eps=added).to(x.dtype)


def own_coefficients(method: str, lower: float, safety: float) -> Coefficients:
    """The coefficients of a method, step by step."""
    if method == "polar-express":
        return polar_express(10, lower, safety)
    return CANS if method == "cans" else MUON


def exact(x: Tensor) -> Tensor:
    """The polar factor, by singular vectors."""
    left, _, right = torch.linalg.svd(x, full_matrices=False)
    return left @ right
