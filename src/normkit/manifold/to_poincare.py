"""Features moved into the ball of Poincaré."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.manifold._ball import Clamped, norm
from normkit.statistics import accurate


@method(
    "to-poincare",
    paper="Hyperbolic Category Discovery (Liu et al., 2025), CVPR, arXiv 2504.06120",
    shape="... C",
    over="C",
    example={"c": 0.5},
)
def to_poincare(x: Tensor, *, c: float, clip: float | None = None, riemannian: bool = False) -> Tensor:
    """Take features as tangent vectors at the origin, and return the points of the ball that they lead to.

    For the step from an encoder to losses or layers of hyperbolic space, such as ``hyperbolic-contrastive`` and
    ``mobius-linear``. Without ``clip`` long features come near the border, where gradients vanish. Data without a
    hierarchy may do as well on a sphere.

    With x the features,

        v = x min(1, clip / (|x| + 1e-5)),    y = tanh(sqrt(c) |v|) v / (sqrt(c) |v|)

    Points beyond 1 - 1e-3 of the radius 1 / sqrt(c) are shortened to that.

    Args:
        x: features (..., D).
        c: minus the curvature.
        clip: the length that features are shortened to, 1.2 to 2.3 in the paper; None: as they are.
        riemannian: multiply the gradient that arrives at y by (1 - c |y|^2)^2 / 4.

    Hyperbolic Category Discovery (Liu et al., 2025), arXiv 2504.06120.
    """
    check.floating("to-poincare", x, "x")
    c = check.number("to-poincare", "c", c, 0.0, open_low=True)
    v = accurate(x)
    if clip is not None:
        clip = check.number("to-poincare", "clip", clip, 0.0, open_low=True)
        v = v * (clip / (norm(v) + 1e-5)).clamp(max=1)
    y = Clamped.project(Clamped.exp0(v, c), c)
    if riemannian:
        still = y.detach()
        y = still + (1 - c * still.square().sum(-1, keepdim=True)).square() / 4 * (y - still)
    return y.to(x.dtype)
