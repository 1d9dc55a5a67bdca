"""AF-KAN: a Kolmogorov-Arnold layer whose basis functions are products of activations."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.activation.batch.batchnorm import BatchNorm
from normkit.activation.batch.tensor_minmax_norm import minmax
from normkit.activation.token.layernorm import LayerNorm
from normkit.catalog import method
from normkit.kinds import Method
from normkit.layers import Linear
from normkit.statistics import accurate

VANISHED = "far outside of the grid all bumps are 0: 0/0, as in the authors' code"
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "selu": torch.selu,
    "tanh": torch.tanh,
    "identity": lambda x: x,
}
COMBINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "quad1": lambda u, w: (u * w).square(),
    "quad2": lambda u, w: u * w + u.square() + w.square(),
    "sum": lambda u, w: u + w,
    "prod": lambda u, w: u * w,
    "sum_prod": lambda u, w: u + w + u * w,
    "cubic1": lambda u, w: (u + w) * (u.square() + w.square()),
    "cubic2": lambda u, w: (u * w) ** 3,
}


@method(
    "af-kan",
    paper="AF-KAN: Activation Function-Based Kolmogorov-Arnold Networks (Ta, Tran, 2025), arXiv 2503.06112",
    shape="N C",
    over="N C",
    example={"out_features": 5},
    exempt={
        "gradients mix.bias": "a number added to all scores leaves their softmax as it is",
        "extremes huge": VANISHED,
        "extremes offset": VANISHED,
        "offsets 1e2 results": "in float32 the bumps are 0 sooner than in float64",
        "offsets 1e2 gradients": "in float32 the bumps are 0 sooner than in float64",
    },
)
class AFKAN(Method):
    """Lay each feature out over a grid of bumps made of activations, weigh them down to one number, and mix linearly.

    For classifiers of vectors that try a Kolmogorov-Arnold network at the parameter count of a linear layer. Each
    feature becomes grid + order numbers on the way, so it takes more memory than an MLP of that size. Where a sample
    must not depend on its batch, set ``normalize=False``.

    With G = grid + order bumps, shared by all features,

        u = act(x - low),   w = act(high - x),   f = combine(u, w)           (N, in, G)
        y = weight act(norm(z))                                             (N, out)

    where z (N, in) is f reduced over G: ``"global"``, the sum of f a with a = softmax over the FEATURES of mix(f) / t;
    ``"multistep"``, z = mix(f); ``"spatial"``, the sum of f a with a = softmax over G of conv(f) / t, a convolution of
    width 3 along the features, one filter a bump. t = max(temperature, 1).

    Args:
        in_features: features of a sample.
        out_features: features of the result.
        grid, order: the bumps start at (i - order) / grid, i = 0 .. G - 1, and are (order + 1) / grid wide.
        method: how G numbers become one: ``"global"``, ``"multistep"`` or ``"spatial"``.
        norm: ``"layer"``, ``"batch"`` or ``"none"``.
        activation: silu, softplus, sigmoid, relu, leaky_relu, elu, gelu, selu, tanh or identity.
        combine: ``"quad1"`` (uw)², ``"quad2"`` uw + u² + w², ``"sum"`` u + w, ``"prod"`` uw, ``"sum_prod"`` u + w + uw,
            ``"cubic1"`` (u + w)(u² + w²), ``"cubic2"`` (uw)³.
        normalize: bring f into [0, 1] by the smallest and largest number of the whole batch, in evaluation too, so
            that a sample's result depends on the others.
        sync: join these, and a batch norm's moments, over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, in_features)``.

    AF-KAN: Activation Function-Based Kolmogorov-Arnold Networks (Ta, Tran, 2025), arXiv 2503.06112.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        grid: int = 5,
        order: int = 3,
        method: str = "global",
        norm: str = "layer",
        activation: str = "silu",
        combine: str = "quad1",
        normalize: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.in_features = check.size(self, "in_features", in_features)
        self.out_features = check.size(self, "out_features", out_features)
        bumps = check.size(self, "grid", grid) + check.size(self, "order", order, 0)
        self.method = check.choice(self, "method", method, ("global", "multistep", "spatial"))
        self.activation = check.choice(self, "activation", activation, tuple(ACTIVATIONS))
        self.combine = check.choice(self, "combine", combine, tuple(COMBINED))
        self.normalize, self.sync, self.process_group = bool(normalize), bool(sync), process_group
        low = torch.arange(-order, grid, dtype=torch.get_default_dtype()) / grid
        self.low = nn.Parameter(low)
        self.high = nn.Parameter(low.detach() + (order + 1) / grid)
        start = torch.tensor(math.sqrt(in_features))
        self.temperature = None if method == "multistep" else nn.Parameter(start)
        self.mix = nn.Conv1d(bumps, bumps, 3, padding=1, groups=bumps) if method == "spatial" else Linear(bumps, 1)
        self.norm = self._norm(check.choice(self, "norm", norm, ("layer", "batch", "none")))
        self.weight = nn.Parameter(nn.init.kaiming_uniform_(torch.empty(out_features, in_features), a=math.sqrt(5)))

    def _norm(self, norm: str) -> nn.Module:
        if norm == "batch":
            return BatchNorm(self.in_features, sync=self.sync, process_group=self.process_group)
        return LayerNorm(self.in_features) if norm == "layer" else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map ``x`` (N, in_features) to (N, out_features)."""
        z = self.norm(self._reduce(self._features(x)))
        return F.linear(ACTIVATIONS[self.activation](z), self.weight.to(z.dtype)).to(x.dtype)

    def features(self, x: Tensor) -> Tensor:
        """Lay ``x`` out over the bumps: (N, in_features, grid + order)."""
        return self._features(x).to(x.dtype)

    def _features(self, x: Tensor) -> Tensor:
        check.values(self, "x", x, (None, self.in_features), x)
        x = accurate(x).unsqueeze(-1)
        act = ACTIVATIONS[self.activation]
        f = COMBINED[self.combine](act(x - self.low.to(x.dtype)), act(self.high.to(x.dtype) - x))
        return minmax(f, self.sync, self.process_group) if self.normalize else f

    def _reduce(self, f: Tensor) -> Tensor:
        if self.temperature is None:
            return self.mix(f).squeeze(-1)
        t = self.temperature.to(f.dtype).clamp(min=1)
        if self.method == "global":
            share = torch.softmax(self.mix(f) / t, -2)
        else:
            weight, bias = (p.to(f.dtype) for p in self.mix.parameters())
            scores = F.conv1d(f.transpose(1, 2), weight, bias, padding=1, groups=f.shape[-1])
            share = torch.softmax(scores / t, 1).transpose(1, 2)
        return (f * share).sum(-1)
