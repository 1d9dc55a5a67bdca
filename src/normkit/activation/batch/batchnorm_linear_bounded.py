"""Batch normalization without a mean, and an activation with a shaped gain: bounded gradients at any depth."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check, statistics
from normkit.catalog import method
from normkit.norm import Norm

ACTIVATIONS = {"identity": lambda x: x, "sin": torch.sin, "tanh": torch.tanh, "relu": F.relu, "selu": F.selu}


@method(
    "batchnorm-linear-bounded",
    paper="Towards Training Without Depth Limits: Batch Normalization Without Gradient Explosion "
    "(Meterez et al., 2023), arXiv 2310.02012",
    shape="N C",
    over="N",
    replaces=("batchnorm",),
    invariant=("scale",),
    exempt={
        "extremes zeros": "a column of zeros has no direction, and by definition there is no eps to give it one: NaN",
        "extremes tiny float16": "1e-20 is 0 in float16: a column of zeros",
    },
)
class BatchNormLinearBounded(Norm):
    """Divide each feature by its length over the batch, next to an activation whose gain may fall with depth.

    For very deep perceptrons with square orthogonal weights and no biases: gradients then stay bounded at any depth.
    Per feature, over the N samples, with f = sqrt(N) or ``force_factor``,

        norm(x) = x f / ||x||,   y = norm(activation(gain x)),   gain = (layer_index + 1)^exponent

    or y = activation(gain norm(x)) in the order ``"norm-act"``. With ``mean_reduction`` the mean is subtracted
    before. There is no eps, no gain to learn and no running value: evaluation too uses the batch.

    Args:
        num_features: C, the number of features.
        mean_reduction: subtract the mean over the batch first, which breaks the bound.
        force_factor: the length that each feature gets, default sqrt(N).
        activation: ``"identity"``, ``"sin"``, ``"tanh"``, ``"relu"`` or ``"selu"``.
        layer_index: how many such layers come before.
        exponent: 0, or negative so that deeper layers are closer to linear.
        order: ``"act-norm"`` or ``"norm-act"``.
        sync: join the batch over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C)``. A feature that is 0 in the whole batch gives NaN.

    The bound holds for random orthogonal weights (``torch.nn.init.orthogonal_``), identity, no mean reduction and
    linearly independent samples; Gaussian weights make gradients grow exponentially with depth.

    Towards Training Without Depth Limits: Batch Normalization Without Gradient Explosion (Meterez, Joudaki, Orabona,
    Immer, Rätsch, Daneshmand, 2023), arXiv 2310.02012.

    Differs from the authors' code in: their command line takes the exponent with the opposite sign.
    """

    def __init__(
        self,
        num_features: int,
        *,
        mean_reduction: bool = False,
        force_factor: float | None = None,
        activation: str = "identity",
        layer_index: int = 0,
        exponent: float = 0.0,
        order: str = "act-norm",
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.mean_reduction = bool(mean_reduction)
        self.force_factor = None if force_factor is None else check.number(self, "force_factor", force_factor)
        self.activation = check.choice(self, "activation", activation, tuple(ACTIVATIONS))
        layer_index = check.size(self, "layer_index", layer_index, 0)
        self.gain = (layer_index + 1) ** check.number(self, "exponent", exponent, -math.inf, 0)
        self.order = check.choice(self, "order", order, ("act-norm", "norm-act"))
        self.sync, self.process_group = bool(sync), process_group

    def forward(self, x: Tensor) -> Tensor:
        """Activate and normalize ``x``."""
        check.channels_first(self, x, self.num_features, most=2)
        wide, activate = statistics.accurate(x), ACTIVATIONS[self.activation]
        if self.order == "act-norm":
            return self._normalize(activate(self.gain * wide)).to(x.dtype)
        return activate(self.gain * self._normalize(wide)).to(x.dtype)

    def _normalize(self, x: Tensor) -> Tensor:
        alone = statistics.are_own(self.sync, self.process_group)
        wide, square, count = self._of_batch(x) if alone else self._of_processes(x)
        y = wide * square.rsqrt()
        return (y if self.force_factor is None else y * (self.force_factor / count.sqrt())).to(x.dtype)

    def _of_batch(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values over their mean size, whose squares stay in range, those squares' mean, and their number."""
        if self.mean_reduction:
            x = x - statistics.mean_over(x, (0,))
        x = x / statistics.mean_over(x.detach().abs(), (0,))
        return x, *statistics.mean_and_count(x.square(), (0,))

    def _of_processes(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same in float64, where squares of float32 are in range, joined over the processes in one message."""
        x, joined = x.double(), {"sync": True, "group": self.process_group}
        if not self.mean_reduction:
            return x, *statistics.mean_and_count(x.square(), (0,), **joined)
        mean, square, count = statistics.moments(x, (0,), **joined)
        return x - mean, square, count
