"""A linear layer from ball to ball."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.manifold._ball import OUTSIDE, Clamped, norm, require_inside
from normkit.statistics import accurate, full_precision


@method(
    "mobius-linear",
    paper="Hyperbolic Category Discovery (Liu et al., 2025), CVPR, arXiv 2504.06120",
    shape="... C : ball",
    over="",
    example={"out_features": 6, "c": 0.5},
    exempt={f"extremes {values}": OUTSIDE for values in ("ones", "huge", "offset")},
)
class MobiusLinear(Method):
    """Multiply points of the ball of Poincaré by a matrix, and add a bias, both in the sense of Möbius.

    For classifiers in hyperbolic space; the authors take the coordinates of the result as logits. For tangent vectors
    in and out take ``poincare-linear``.

    With s = sqrt(c) and the bias a tangent vector at the origin,

        v = tanh(|W x| / |x| artanh(s |x|)) W x / (|W x| s),    y = v + exp_0(bias)

    Args:
        in_features: size of the input's last axis.
        out_features: size of the output's last axis.
        c: minus the curvature.
        bias_c: that of the addition; 1.0 whatever c is in the authors' code, None: c, which is the mathematics.

    Input points (..., in_features), output points. State: ``weight`` (out, in) and ``bias`` (out,), uniform as in
    torch.nn.Linear. 0 goes to the bias alone.

    Hyperbolic Category Discovery (Liu et al., 2025), arXiv 2504.06120.
    """

    def __init__(self, in_features: int, out_features: int, *, c: float, bias_c: float | None = 1.0):
        super().__init__()
        self.in_features = check.size(self, "in_features", in_features)
        self.out_features = check.size(self, "out_features", out_features)
        self.c = check.number(self, "c", c, 0.0, open_low=True)
        self.bias_c = None if bias_c is None else check.number(self, "bias_c", bias_c, 0.0)
        start = nn.Linear(in_features, out_features)
        self.weight, self.bias = start.weight, start.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return points of the ball."""
        check.features_last(self, x, self.in_features)
        wide, weight = accurate(x), accurate(self.weight)
        with full_precision(x):
            moved = wide.to(weight.dtype) @ weight.mT
        require_inside(self, "x", wide, self.c)
        root, length = math.sqrt(self.c), Clamped.length(wide)
        image = norm(moved)
        safe = torch.where(image > 0, image, 1)
        v = (image / length * Clamped.artanh(root * length)).clamp(max=15).tanh() * moved / (safe * root)
        v = Clamped.project(v, self.c)
        shift = Clamped.exp0(accurate(self.bias), self.c)
        curvature = self.c if self.bias_c is None else self.bias_c
        return Clamped.project(Clamped.add(v, shift, curvature), self.c).to(x.dtype)
