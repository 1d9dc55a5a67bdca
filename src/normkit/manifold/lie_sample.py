"""Elements of a matrix group, drawn around the identity."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.manifold import _lie, _symmetric
from normkit.statistics import full_precision, reals


@method(
    "lie-sample",
    paper="Lie Group Decompositions for Equivariant Neural Networks (Mironenco, Forré, 2024), arXiv 2310.11366",
    shape="N 3",
    over="",
    inputs={"uniform": "N : unit"},
    exempt={"second-derivatives": _symmetric.FIRST},
)
def lie_sample(
    normal: Tensor,
    uniform: Tensor,
    *,
    group: str = "gl2",
    variance: float = 0.2,
    bound: float = 1.0,
    alpha: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Turn random numbers into 2 by 2 matrices, log-normal in the stretch and uniform in the angle, and their inverses.

    For group convolutions as averages over drawn elements. With v the normal numbers times sqrt(variance), o =
    1 / sqrt(2 alpha), and Q the rotation by pi bound (2 uniform - 1),

        "gl2":  S = [[v_0 / sqrt(alpha), o v_1], [o v_1, v_2 / sqrt(alpha)]]
        "sl2":  S = o [[v_0, v_1], [v_1, -v_0]]
        g = exp(S / 2) Q,    inverse = Qᵀ exp(-S / 2)

    Args:
        normal: standard normal numbers, (N, 3), of ``"sl2"`` (N, 2).
        uniform: numbers in [0, 1), (N,).
        group: ``"gl2"`` or ``"sl2"``.
        variance: of the logarithm of the stretch.
        bound: the share of the half circle that angles take on either side.
        alpha: of the metric.

    Returns g and its inverse, (N, 2, 2) each. The root of the log-normal matrix is drawn, S / 2, as in the authors'
    code. Lie Group Decompositions for Equivariant Neural Networks (Mironenco, Forré, 2024), arXiv 2310.11366.
    """
    group = check.choice("lie-sample", "group", group, _lie.GROUPS)
    v = reals("lie-sample", "normal", normal, (None, 3 if group == "gl2" else 2))
    share = reals("lie-sample", "uniform", uniform, (len(v),), normal).to(v.dtype)
    variance = check.number("lie-sample", "variance", variance, 0.0)
    bound = check.number("lie-sample", "bound", bound, 0.0)
    alpha = check.number("lie-sample", "alpha", alpha, 0.0, open_low=True)
    v = v * math.sqrt(variance)
    o = 1 / math.sqrt(2 * alpha)
    entries = [v[:, 0] / math.sqrt(alpha), o * v[:, 1], v[:, -1] / math.sqrt(alpha)]
    if group == "sl2":
        entries = [o * v[:, 0], o * v[:, 1], -o * v[:, 0]]
    half = _matrix(entries[0], entries[1], entries[1], entries[2]) / 2
    angle = math.pi * bound * (2 * share - 1)
    turn = _matrix(angle.cos(), -angle.sin(), angle.sin(), angle.cos())
    of = _symmetric.spectrum(half)
    back = _symmetric.apply(of, lambda e: (-e).exp(), lambda e: -(-e).exp(), relative=False)
    with full_precision(normal):
        return (_symmetric.exp(of) @ turn).to(normal.dtype), (turn.mT @ back).to(normal.dtype)


def _matrix(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return torch.stack([a, b, c, d], -1).unflatten(-1, (2, 2))
