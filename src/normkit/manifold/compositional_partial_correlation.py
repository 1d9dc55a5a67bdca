"""Correlations of parts of a whole, which do not depend on how the rows were scaled."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, ops
from normkit.catalog import method
from normkit.manifold._points import have_full_rank
from normkit.statistics import full_precision, reals


@method(
    "compositional-partial-correlation",
    paper="Partial Correlations in Compositional Data Analysis (Erb, 2019)",
    evidence="equations",
    shape="12N 5 : unit",
    over="12N",
    invariant=("scale of a row",),
)
def compositional_partial_correlation(x: Tensor, *, pseudocount: float = 0.0, ddof: int = 1) -> tuple[Tensor, Tensor]:
    """Return the partial correlations of the logarithms of parts, whatever the total of each row.

    For counts of species, transcripts or minerals, of which only ratios tell. Of the logarithms of ratios to any one
    part r, with covariance Sigma, and F the matrix that takes the logarithms of all parts to those ratios,

        P = Fᵀ Sigma⁻¹ F,    correlation_ij = -P_ij / sqrt(P_ii P_jj),    variance_i = 1 / P_ii

    the same for every r. A correlation is that of the residuals of two ratios after a regression on all the others.
    The diagonal is 1.

    Args:
        x: parts (N, D), rows are samples, of which more than D - 1 are wanted; all positive after the pseudocount.
        pseudocount: added to every part, for counts with zeros.
        ddof: what the number of samples is lessened by in the covariance; it cancels in the correlation.

    Returns the partial correlations (D, D) and partial variances (D,). Leaving a part out changes the others. With D
    = 2 the correlation is always 1.

    Partial Correlations in Compositional Data Analysis (2019).
    """
    owner = "compositional-partial-correlation"
    wide = reals(owner, "x", x, (None, None))
    ddof = check.size(owner, "ddof", ddof, least=0)
    parts = wide + check.number(owner, "pseudocount", pseudocount, 0.0)
    _refuse(owner, parts, ddof)
    with full_precision(x):
        precision = _precision(owner, parts.log(), ddof)
    scale = precision.diagonal().sqrt()
    correlation = -precision / (scale.unsqueeze(0) * scale.unsqueeze(1))
    same = torch.eye(len(scale), dtype=torch.bool, device=x.device)
    return torch.where(same, 1, correlation).to(x.dtype), (1 / precision.diagonal()).to(x.dtype)


def _precision(owner: str, logarithms: Tensor, ddof: int) -> Tensor:
    """P (D, D) of logarithms (N, D), by their ratios to the last part."""
    ratios = logarithms[:, :-1] - logarithms[:, -1:]
    centered = ratios - ratios.mean(0)
    covariance = centered.mT @ centered / (len(centered) - ddof)
    _refuse_singular(owner, covariance.detach())
    inverse = torch.linalg.inv(covariance)
    rows = torch.cat([inverse, -inverse.sum(0, keepdim=True)])
    return torch.cat([rows, -rows.sum(1, keepdim=True)], 1)


def _refuse_singular(owner: str, covariance: Tensor) -> None:
    """Refuse parts of which one follows from others, as far as rounding lets it be seen."""
    readable = check.readable(covariance) and bool(covariance.isfinite().all())
    if readable and not have_full_rank(ops.eigvalsh(covariance)):
        raise ValueError(
            f"{owner}: x must have no part that follows from others, such as one proportional to another in all "
            "samples; leave one of them out"
        )


def _refuse(owner: str, parts: Tensor, ddof: int) -> None:
    n, d = parts.shape
    if d < 2 or n < d or n <= ddof:
        raise ValueError(f"{owner}: x must have at least 2 parts and more than D - 1 samples, but is {n} by {d}")
    if check.readable(parts) and not parts.detach().min() > 0:
        raise ValueError(
            f"{owner}: x must have positive parts, but {parts.detach().min().item():.6g} is in it; "
            f"pseudocount is added to all"
        )
