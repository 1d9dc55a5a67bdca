"""A linear layer whose outputs are distances to hyperplanes of the ball of Poincaré."""

from __future__ import annotations

from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.manifold import _poincare
from normkit.statistics import accurate


@method(
    "poincare-linear",
    paper="Poincaré ResNet (van Spengler et al., 2023), arXiv 2303.14027",
    shape="... C",
    over="",
    example={"out_features": 6},
    exempt=_poincare.BORDER,
)
class PoincareLinear(Method):
    """Measure how far vectors, taken into the ball of Poincaré, lie from learned hyperplanes, and return to vectors.

    For hyperbolic networks. Inputs and outputs are tangent vectors at the origin. With x = exp_0(input), z_k a column
    of the weight, r_k the bias, s = sqrt(c) and L = 2 (1 - c |x|^2),

        d_k = 2 |z_k| / s asinh(s L <x, z_k> / |z_k| cosh(2 s r_k) - (L - 1) sinh(2 s r_k))
        u_k = sinh(s d_k) / s,    output = log_0(u / (1 + sqrt(1 + c |u|^2)))

    Args:
        in_features: size of the input's last axis.
        out_features: size of the output's last axis.
        bias: learn a bias.
        curvature: c, minus the curvature.
        id_init: start from half the identity, which leaves small vectors as they are; False: from normal numbers with
            deviation (2 in out)^(-1/2).

    State: ``weight`` (in, out), ``bias`` (out,), zeros at the start.

    Poincaré ResNet (van Spengler et al., 2023), arXiv 2303.14027. As in its code L multiplies by 1 - c |x|^2 where
    Hyperbolic Neural Networks++ divides by it; both agree at the origin.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        curvature: float = 1.0,
        id_init: bool = True,
    ):
        super().__init__()
        self.in_features = check.size(self, "in_features", in_features)
        self.out_features = check.size(self, "out_features", out_features)
        self.curvature = check.number(self, "curvature", curvature, 0.0, open_low=True)
        self.weight, self.bias = _poincare.start(in_features, out_features, bias, id_init)

    def forward(self, x: Tensor) -> Tensor:
        """Return tangent vectors at the origin."""
        check.features_last(self, x, self.in_features)
        return _poincare.linear(accurate(x), self.weight, self.bias, self.curvature).to(x.dtype)
