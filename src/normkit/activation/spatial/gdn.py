"""Generalized divisive normalization."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.sharded import part_of

PEDESTAL = 2.0**-36  # keeps the gradient of a squared parameter alive at 0


@method(
    "gdn",
    paper="Density Modeling of Images using a Generalized Normalization Transformation (Ballé et al., 2015), "
    "arXiv 1511.06281",
    evidence="library",
    shape="N C *",
    over="C",
    aliases=("generalized-divisive-norm",),
    replaces=("batchnorm",),
    exempt={"batches": "the order of sums in torch's convolution follows batch and threads"},
    messages="a bounded parameter takes its gradient by the sum, which with cut channels follows that of the divisors",
)
class GDN(Norm):
    """Divide each channel by a learned mix of all channels' energies at its position.

    For learned image compression, in the encoder; with ``inverse`` it multiplies, for the decoder. To make responses
    jointly Gaussian take ``gdn-parametric``.

    At each position

        d = B + G |x|^power,    y = x / sqrt(d) (power 2)  or  x / d (power 1),    inverse: y = x * sqrt(d)  or  x * d

    B (C,) and G (C, C), row i for output channel i, are kept as the square roots that the optimizer sees:

        B = max(beta, sqrt(beta_min + q))² - q,    G = max(gamma, sqrt(q))² - q,    q = 2^-36

    A value under its bound gets only gradients that push it up. The inverse layer has its own parameters and is one
    step of a fixed-point iteration: with the parameters of a GDN it does not undo it exactly.

    Args:
        num_features: C, the number of channels.
        inverse: multiply instead of divide.
        power: 2, or 1 for the form without a root.
        beta_min: lower bound of B.
        gamma_init: start of the diagonal of G; B starts at 1.

    Input ``(N, C, *space)``.

    Density Modeling of Images using a Generalized Normalization Transformation (Ballé et al., 2015), arXiv 1511.06281;
    power 1: Computationally Efficient Neural Image Compression (Johnston et al., 2019), arXiv 1912.08771.
    """

    def __init__(
        self,
        num_features: int,
        *,
        inverse: bool = False,
        power: int = 2,
        beta_min: float = 1e-6,
        gamma_init: float = 0.1,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.inverse = bool(inverse)
        self.power = check.choice(self, "power", power, (1, 2))
        self.beta_min = check.eps(self, beta_min, "beta_min")
        gamma_init = check.eps(self, gamma_init, "gamma_init")
        self.beta = nn.Parameter((torch.ones(num_features) + PEDESTAL).sqrt())
        self.gamma = nn.Parameter((gamma_init * torch.eye(num_features) + PEDESTAL).sqrt())

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        check.channels_first(self, x, self.num_features)
        exact = statistics.accurate(x)
        energy = exact.square() if self.power == 2 else exact.abs()
        bias = _square(self.beta.to(exact.dtype), (self.beta_min + PEDESTAL) ** 0.5)
        mix = _square(self.gamma.to(exact.dtype), PEDESTAL**0.5)
        with statistics.full_precision(x):
            d = self._mix(energy, bias, mix)
        if self.power == 1:
            return (exact * d if self.inverse else exact / d).to(x.dtype)
        return (exact * (d.sqrt() if self.inverse else d.rsqrt())).to(x.dtype)

    def _mix(self, energy: Tensor, bias: Tensor, mix: Tensor) -> Tensor:
        part = part_of(self, energy)
        if part is None:
            return F.conv1d(energy.unsqueeze(-1).flatten(2), mix[:, :, None], bias).reshape(energy.shape)
        bias, mix = part.with_gradients_of_all(self, beta=bias, gamma=mix)
        own = part.own(part.product(mix, part.local))
        return part.joined(own + ops.channel.along(part.rows(bias), part.local))


def _square(raw: Tensor, bound: float) -> Tensor:
    held = _LowerBound if torch.compiler.is_compiling() else _LowerBoundForward
    return held.apply(raw, bound).square() - PEDESTAL


class _LowerBound(torch.autograd.Function):
    """max(value, bound), where a value under the bound still gets the gradients that would raise it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value, bound):
        return value.clamp(min=bound)

    @staticmethod
    def setup_context(ctx, inputs, output):
        value, bound = inputs
        free = value >= bound
        ctx.save_for_backward(free)
        ctx.save_for_forward(free)

    @staticmethod
    def backward(ctx, grad):
        (free,) = ctx.saved_tensors
        return grad * (free | (grad < 0)), None


class _LowerBoundForward(_LowerBound):
    """The same with the derivative in forward mode, with which torch compiles no function."""

    @staticmethod
    def jvp(ctx, tangent, _):
        (free,) = ctx.saved_tensors
        return tangent * free
