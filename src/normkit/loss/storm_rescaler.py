"""STORM's rescaler: how far each sample's label is to be trusted, told by a small net."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.running import Running
from normkit.statistics import accurate, full_precision, moments

EPS = 1e-5


@method(
    "storm-rescaler",
    paper="Learning from Noisy Labels via Self-Taught On-the-Fly Meta Loss Rescaling (Heck et al., 2025), "
    "arXiv 2412.12955",
    shape="N C",
    over="N",
    inputs={"target": "N : index 3"},
    example={"num_features": lambda width: width, "num_classes": 3},
    exempt={
        "gradients hidden_bias": "the mean of the batch is taken off after it",
        "gradients output_bias": "the mean of the batch is taken off after it",
    },
)
class StormRescaler(Method, Running):
    """Turn the features of each sample's losses into a weight between 0 and 1, a net for each class.

    For noisy labels: taught by ``storm-meta-loss``, without clean data. Per class,

        h = relu(bn(features hidden_weightᵀ + hidden_bias)),    o = bn(h output_weightᵀ + output_bias)
        weight = softmax(o)[1]

    bn has no gain, eps 1e-5 and momentum 0.1; its statistics are those of the whole batch in each net, whatever the
    labels. Since it comes last, about half of a batch always weighs less than 1/2.

    Args:
        num_features: of ``storm-features``, 19.
        num_classes: how many nets there are; None: one for all.
        sync: join the statistics over the processes of ``process_group``.
        process_group: the processes to join, default all.

    ``rescaler(features, target)``: (N, F) and classes int64 (N,), which are left out where there is one net. At least
    two samples in training. State: ``hidden_weight`` (K, F, F), ``hidden_bias`` (K, F), ``output_weight`` (K, 2, F),
    ``output_bias`` (K, 2), and ``hidden_mean``, ``hidden_var``, ``output_mean``, ``output_var``.

    STORM (Heck et al., 2025), arXiv 2412.12955.
    """

    momentum = 0.1

    def __init__(
        self, num_features: int = 19, num_classes: int | None = None, *, sync: bool = False, process_group=None
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.num_classes = None if num_classes is None else check.size(self, "num_classes", num_classes)
        self.sync, self.process_group = sync, process_group
        nets = num_classes or 1
        for name, size in (("hidden", num_features), ("output", 2)):
            bound = 1 / math.sqrt(num_features)
            weight = torch.empty(nets, size, num_features).uniform_(-bound, bound)
            self.register_parameter(f"{name}_weight", nn.Parameter(weight))
            self.register_parameter(f"{name}_bias", nn.Parameter(torch.empty(nets, size).uniform_(-bound, bound)))
            self.register_buffer(f"{name}_mean", torch.zeros(nets, size))
            self.register_buffer(f"{name}_var", torch.ones(nets, size))

    def forward(self, features: Tensor, target: Tensor | None = None) -> Tensor:
        """Return the weights (N,); in training move the statistics."""
        check.values(self, "features", features, (None, self.num_features), features)
        net = self._net(features, target)
        if self.training and not self.sync and len(features) < 2:
            raise ValueError(f"StormRescaler: features must have at least 2 rows in training, not {len(features)}")
        x = accurate(features).expand(self.num_classes or 1, *features.shape)
        out = self._normalize("output", self._normalize("hidden", x).relu())
        return torch.softmax(out, 2)[net, torch.arange(len(net), device=net.device), 1].to(features.dtype)

    def _net(self, features: Tensor, target: Tensor | None) -> Tensor:
        """Whose output each sample takes."""
        if self.num_classes is None and target is None:
            return torch.zeros(len(features), dtype=torch.int64, device=features.device)
        if target is None:
            raise ValueError(f"StormRescaler: target is wanted, as each of {self.num_classes} classes has a net")
        check.index(self, "target", target, features.shape[:1], self.num_classes, features)
        return target if self.num_classes else torch.zeros_like(target)

    def _normalize(self, name: str, x: Tensor) -> Tensor:
        """One linear map (K, N, F) and its batch norm."""
        weight, bias = (accurate(getattr(self, f"{name}_{part}")) for part in ("weight", "bias"))
        with full_precision(x):
            x = x.to(weight.dtype) @ weight.mT + bias.unsqueeze(1)
        if not self.training:
            mean, var = (accurate(getattr(self, f"{name}_{part}")) for part in ("mean", "var"))
        else:
            stats = moments(x, (1,), group=self.process_group, sync=self.sync)
            mean, var = stats.mean, stats.var
            self.move(stats.count, **{f"{name}_mean": mean, f"{name}_var": stats.unbiased()})
        return (x - mean.unsqueeze(1)) * (var + EPS).rsqrt().unsqueeze(1)
