"""What the paper of elementwise layer normalization claims against DyT."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

DIM, SIZES = 64, (3.0, 10.0, 30.0, 100.0)


def fitted_error(x, truth, name):
    """The largest error after a least-squares fit of the shape on a grid, and of a gain for each shape."""
    shape = torch.logspace(-3, 5, 400, dtype=torch.float64)[:, None]
    curves = DIM**0.5 * x / (shape + x**2).sqrt() if name == "eln" else torch.tanh(x / shape.sqrt())
    gains = (curves * truth).sum(1, keepdim=True) / curves.square().sum(1, keepdim=True)
    errors = gains * curves - truth
    return errors[errors.square().sum(1).argmin()].abs().max()


def row_ratio(seed, name="eln"):
    """Its error over DyT's, on rows with an outlier; the largest over sizes of the outlier."""
    norm, ratios = nk.RMSNorm(DIM, eps=0.0, affine=False), []
    for size in SIZES:
        x = randn(DIM)
        x[0] = size
        ratios.append(fitted_error(x, norm(x), name) / fitted_error(x, norm(x), "dyt"))
    return max(ratios)


def entry_ratio(seed, name="eln"):
    """The same for the outlier's own entry, as it grows while the row stays."""
    norm = nk.RMSNorm(DIM, eps=0.0, affine=False)
    x = torch.linspace(-max(SIZES), max(SIZES), 401, dtype=torch.float64)
    rows = randn(DIM).expand(401, -1).clone()
    rows[:, 0] = x
    target = norm(rows)[:, 0]
    return fitted_error(x, target, name) / fitted_error(x, target, "dyt")


CLAIMS = [
    Measured(
        "entry",
        says="For the outlier's own entry it resembles RMSNorm more closely than DyT.",
        measure=entry_ratio,
        wanted=below(0.9),
        control=partial(entry_ratio, name="dyt"),
        against="DyT fitted likewise",
        number="largest error over DyT's",
    ),
    Measured(
        "row",
        says="On rows with an outlier it resembles RMSNorm more closely than DyT, at every size of the outlier.",
        measure=row_ratio,
        wanted=below(0.9),
        control=partial(row_ratio, name="dyt"),
        against="DyT fitted likewise",
        number="largest error over DyT's",
    ),
]
