"""Generalized divisive normalization with all its exponents learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.activation._layout import in_layout_of
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.sharded import Parts, by_parts


@method(
    "gdn-parametric",
    paper="Density Modeling of Images using a Generalized Normalization Transformation (Ballé et al., 2015), "
    "arXiv 1511.06281",
    evidence="equations",
    shape="N C *",
    over="C",
    provenance="worked out from the paper's equation; the initial values are normkit's choice",
    exempt={"batches": "the order of sums in torch's convolution follows batch and threads"},
)
class GDNParametric(Norm):
    """Divide linear responses by a learned power of a learned mix of their powers.

    For density modelling: the transformation that makes the responses of image filters jointly Gaussian. At each
    position, with z = weight x,

        y[i] = z[i] / ( beta[i] + sum over j of gamma[i, j] |z[j]|^alpha[i, j] )^epsilon[i]

    It is invertible for beta > 0, gamma >= 0, alpha >= 1 and alpha[i, i] epsilon[i] <= 1, which the training loop
    keeps, by a projection after each step. alpha 2, epsilon 1/2 and weight I, the start, give GDN; a diagonal gamma
    treats each channel alone; a constant alpha and a gamma of equal rows give a radial transformation.

    Args:
        num_features: C, the number of channels.

    Input ``(N, C)`` or ``(N, C, *space)``; C times as many numbers as x has are held in between.

    Density Modeling of Images using a Generalized Normalization Transformation (Ballé et al., 2015), arXiv 1511.06281.

    There is no code of the authors; the initial values (weight I, beta 1, gamma 0.1 I, alpha 2, epsilon 0.5) are
    normkit's. Where z[j] is 0, its power has no gradient, neither for z[j] nor for alpha.
    """

    def __init__(self, num_features: int):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.weight = nn.Parameter(torch.eye(num_features))
        self.beta = nn.Parameter(torch.ones(num_features))
        self.gamma = nn.Parameter(0.1 * torch.eye(num_features))
        self.alpha = nn.Parameter(torch.full((num_features, num_features), 2.0))
        self.epsilon = nn.Parameter(torch.full((num_features,), 0.5))

    @by_parts
    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x``."""
        check.channels_first(self, x, self.num_features)
        exact = statistics.accurate(x)
        kind = exact.dtype
        vectors = exact.movedim(1, -1)
        z = (vectors @ self.weight.to(kind).mT).to(kind)
        d = self.beta.to(kind) + _mixed_powers(z, self.alpha.to(kind), self.gamma.to(kind))
        y = (z * d ** -self.epsilon.to(kind)).movedim(-1, 1)
        return in_layout_of(x, y).to(x.dtype)

    def over_parts(self, part: Parts) -> Tensor:
        """Transform images whose channels are cut, by one message: its sum is every response, which each needs."""
        check.channels_first(self, part.whole, self.num_features)
        exact = statistics.accurate(part.local)
        kind = exact.dtype
        squares = {"weight": self.weight, "alpha": self.alpha, "gamma": self.gamma}
        weight, alpha, gamma = (part.shared(self, name, value).to(kind) for name, value in squares.items())
        beta, epsilon = (
            part.parameter(self, name, value, 1).to(kind)
            for name, value in (("beta", self.beta), ("epsilon", self.epsilon))
        )
        z = part.product(weight, exact)
        own = part.own(z).movedim(1, -1)
        d = beta + _mixed_powers(z.movedim(1, -1), part.rows(alpha), part.rows(gamma))
        return in_layout_of(part.local, (own * d**-epsilon).movedim(-1, 1)).to(part.local.dtype)


def _mixed_powers(z: Tensor, alpha: Tensor, gamma: Tensor) -> Tensor:
    """For each i the sum over j of gamma[i, j] |z[j]|^alpha[i, j], where 0 has no gradient."""
    zero = (z == 0).unsqueeze(-2)
    size = torch.where(zero, 1, z.abs().unsqueeze(-2))
    return (torch.where(zero, 0, size**alpha) * gamma).sum(-1)
