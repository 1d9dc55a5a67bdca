"""Universal random features: a dot product of exponentials that estimates any activation of another."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate, full_precision

NAME = "snnk-exponential"


@method(
    NAME,
    paper="Scalable Neural Network Kernels (Sehanobish et al., 2024), arXiv 2310.13225",
    shape="N C",
    over="C",
    inputs={"projection": "K C", "scale": "K", "gain": "K"},
)
def snnk_exponential(
    x: Tensor, projection: Tensor, scale: Tensor, gain: Tensor, *, normalize: bool = False, radius: float | None = None
) -> Tensor:
    """Return random exponential features, whose products estimate exp(a b x . w).

    For layers f(W x) in which input and weight meet in a product of features only. With rows g_i of a standard normal
    projection, m of them,

        features_i = gain_i / sqrt(m) exp(scale_i g_i . x - scale_i^2 |x|^2 / 2)

    The same projection with scales a for x and b for w gives features whose expected product is gain gain'
    exp(a b x . w). Their variance grows as exp(|x + w|^2): keep inputs short.

    Args:
        x: (..., dim).
        projection: (m, dim).
        scale, gain: (m,), real.
        normalize: divide x by its length first.
        radius: and multiply it by this; without ``normalize`` it has no effect.

    Scalable Neural Network Kernels (Sehanobish et al., 2024), arXiv 2310.13225.

    Differs from the authors' code in: the 1/2 is for inputs of every rank, not of two axes alone.
    """
    check.values(NAME, "projection", projection, (None, None), projection)
    check.features_last(NAME, x, projection.shape[1])
    for name, numbers in (("scale", scale), ("gain", gain)):
        check.values(NAME, name, numbers, projection.shape[:1], x)
    wide, directions, s, g = (accurate(value) for value in (x, projection, scale, gain))
    if radius is not None:
        check.number(NAME, "radius", radius, 0.0, open_low=True)
    if normalize:
        wide = F.normalize(wide, dim=-1) * (1.0 if radius is None else radius)
    with full_precision(x):
        along = wide @ directions.mT.to(wide.dtype)
    exponent = s * along - s.square() * wide.square().sum(-1, keepdim=True) / 2
    return (g / math.sqrt(len(directions)) * exponent.exp()).to(x.dtype)
