"""CSNorm: normalize the channels that a gate selects."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.catalog import method
from normkit.layers import Linear
from normkit.norm import Norm
from normkit.ops.sharded import Parts, by_parts


@method(
    "csnorm",
    paper="Generalized Lightness Adaptation with Channel Selective Normalization (Yao et al., 2023), arXiv 2308.13783",
    shape="N C +",
    over="*",
    replaces=("instancenorm",),
    exempt={"batches rows": "the order of sums in a linear layer's product follows the number of its rows"},
)
class CSNorm(Norm):
    """Instance-normalize the channels that a nearly binary gate opens for the image, leave the others as they are.

    For image enhancement that shall hold up under other lightness: the gate learns which channels carry it. With mean
    and biased variance over space, per sample and channel,

        a = relu(expand(relu(reduce(mean))))        g = a² / (a² + gate_eps)
        y = g * (weight * (x - mean) / sqrt(var + eps) + bias) + (1 - g) * x

    g is 0 where a is, and nearly 1 once a is well above sqrt(gate_eps): it learns only in between. The authors train in
    alternation: first all other layers with this one frozen, then this one alone on images of perturbed amplitude.

    Args:
        num_features: C, the number of channels.
        hidden_channels: width between ``reduce`` and ``expand``, default C // 2.
        eps: added to the variance under the root.
        gate_eps: the squared activation at which the gate is half open; 0 gives a step.

    Input ``(N, C, *space)`` with at least one axis of space.

    Generalized Lightness Adaptation with Channel Selective Normalization (Yao et al., 2023), arXiv 2308.13783.

    Differs from the authors' code in: the widths are free, where theirs are 512 and 256, and one affine of C channels
    replaces their C instance norms of one channel.
    """

    def __init__(
        self, num_features: int, *, hidden_channels: int | None = None, eps: float = 1e-5, gate_eps: float = 1e-8
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        hidden = num_features // 2 if hidden_channels is None else hidden_channels
        self.hidden_channels = check.size(self, "hidden_channels", hidden)
        self.eps = check.eps(self, eps)
        self.gate_eps = check.eps(self, gate_eps, "gate_eps")
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.reduce = Linear(num_features, hidden)
        self.expand = Linear(hidden, num_features)

    @by_parts
    def forward(self, x: Tensor) -> Tensor:
        """Normalize the selected channels of ``x``."""
        check.channels_first(self, x, self.num_features, 3)
        exact = statistics.accurate(x)
        moments = ops.instance_moments(exact)
        gate = self._gate(self.expand(torch.relu(self.reduce(moments.mean))).to(exact.dtype))
        normalized = ops.normalize_with(exact, moments.mean, moments.var, self.weight, self.bias, eps=self.eps)
        return (ops.affine(normalized, gate) + ops.affine(exact, 1 - gate)).to(x.dtype)

    def _gate(self, expanded: Tensor) -> Tensor:
        square = torch.relu(expanded).square()
        return square / torch.where(square > 0, square + self.gate_eps, 1)

    def over_parts(self, part: Parts) -> Tensor:
        """Normalize images whose space is cut, by a message of moments, or whose channels are, by one of the gate's."""
        check.channels_first(self, part.whole, self.num_features, 3)
        exact, space = statistics.accurate(part.local), range(2, part.whole.ndim)
        mean, var = (m.flatten(1).to(exact.dtype) for m in part.moments(exact, space))
        weight, bias = (part.parameter(self, n, p, 1) for n, p in (("weight", self.weight), ("bias", self.bias)))
        with part.within(self):
            matrix, shift = self.reduce.weight.to(mean.dtype), self.reduce.bias.to(mean.dtype)
            hidden = torch.relu(part.product(matrix, mean) + shift)
            gate = self._gate(part.own(self.expand(hidden).to(exact.dtype)))
        normalized = ops.normalize_with(exact, mean, var, weight, bias, eps=self.eps)
        return (ops.affine(normalized, gate) + ops.affine(exact, 1 - gate)).to(part.local.dtype)
