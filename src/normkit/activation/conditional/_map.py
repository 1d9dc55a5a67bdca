"""What the norms modulated by a map share: a parameter-free norm by argument, and gains that are convolved maps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.norm import Norm
from normkit.running import Running

BY_ROWS = dict.fromkeys(
    ("batches rows", "batches order"), "the order of sums in a linear layer's product follows the number of its rows"
)


class FreeNorm(Running, Norm):
    """Normalize each channel without parameters, by the sample's own moments or by the batch's.

    ``norm`` is "instance" or "batch"; the latter keeps running averages and, with ``sync``, takes the moments over all
    processes of ``process_group``.
    """

    running_mean: Tensor | None
    running_var: Tensor | None

    def __init__(
        self,
        num_features: int,
        *,
        norm: str = "instance",
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.norm = check.choice(self, "norm", norm, ("instance", "batch"))
        self.eps = check.eps(self, eps)
        self.momentum = None if momentum is None else check.number(self, "momentum", momentum, 0, 1)
        self.sync, self.process_group = sync, process_group
        self.keep_moments(num_features, norm == "batch")

    def _normalize(self, x: Tensor) -> Tensor:
        """Return the normalized values in the type of the statistics; in training move the running averages."""
        x = statistics.accurate(x)
        if self.running_mean is None or self.running_var is None:
            return ops.instance_norm(x, eps=self.eps)
        if not self.training:
            return ops.normalize_with(x, self.running_mean, self.running_var, eps=self.eps)
        if x.numel() == self.num_features and statistics.are_own(self.sync, self.process_group):
            name = type(self).__name__
            raise ValueError(f"{name}: x of shape {tuple(x.shape)} has one value a channel; training needs more")
        y, moments = ops.batch_norm(x, eps=self.eps, sync=self.sync, group=self.process_group)
        self.follow(moments)
        return y


class MapNorm(FreeNorm):
    """Modulate the normalized values, n (1 + gamma(map)) + beta(map), with two convolutions of one map."""

    def __init__(self, num_features: int, map_channels: int, kernel_size: int, **free):
        super().__init__(num_features, **free)
        if check.size(self, "kernel_size", kernel_size) % 2 == 0:
            raise ValueError(f"{type(self).__name__}: kernel_size must be odd, not {kernel_size}")
        self.gamma = convolution(map_channels, num_features, kernel_size)
        self.beta = convolution(map_channels, num_features, kernel_size)

    def _modulate(self, x: Tensor, map: Tensor) -> Tensor:
        gain, shift = (statistics.accurate(run(layer, map)) for layer in (self.gamma, self.beta))
        return (self._normalize(x) * (1 + gain) + shift).to(x.dtype)


class ResizedMapNorm(MapNorm):
    """Resize a map of any size to that of x, to the nearest entry, and modulate with a hidden layer of it."""

    def __init__(self, num_features: int, map_channels: int, hidden_channels: int, kernel_size: int, **free):
        hidden_channels = check.size(self, "hidden_channels", hidden_channels)
        super().__init__(num_features, hidden_channels, kernel_size, **free)
        self.map_channels = map_channels
        self.shared = convolution(map_channels, hidden_channels, kernel_size)

    def _forward(self, x: Tensor, map: Tensor, name: str) -> Tensor:
        check.channels_first(self, x, self.num_features, 4, 4)
        check.values(self, name, map, (x.shape[0], self.map_channels, None, None), x)
        resized = F.interpolate(map, size=x.shape[2:], mode="nearest")
        return self._modulate(x, torch.relu(run(self.shared, resized)))


def convolution(inputs: int, outputs: int, kernel_size: int) -> nn.Conv2d:
    """A convolution that keeps the size of the map, padded with zeros."""
    return nn.Conv2d(inputs, outputs, kernel_size, padding=kernel_size // 2)


def run(layer: nn.Conv2d | nn.Linear, x: Tensor) -> Tensor:
    """Call a layer on an input of another floating-point type: the layer computes in the type of its weight."""
    return layer(x.to(layer.weight.dtype))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear map in the type of x, for what must not lose digits to parameters in half precision."""
    return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
