"""Images at several scales: at each a square of four pixels becomes channels, and half of the channels leave the chain.

What has left stands first in the flattened image, and what is still worked on last, so that a chain of parts is still a
chain, which can be set from data, and gone back through, part by part.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit.density._parts import AffineCurve, FlowCondition, Part


class Scaled(Part):
    """A part that works on the last numbers of a flattened image, as an image of another shape."""

    def __init__(self, part: nn.Module, shape: tuple[int, int, int]):
        super().__init__()
        self.part, self.shape = part, torch.Size(shape)

    def _cut(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.flatten(1)
        done, other = flat.tensor_split([flat.shape[1] - self.shape.numel()], 1)
        return done, other.reshape(-1, *self.shape)

    def initialize(self, x: Tensor) -> None:
        """Set what starts from data."""
        setting = getattr(self.part, "initialize", None)
        if setting is not None:
            setting(self._cut(x)[1])

    def forward(self, x: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor]:
        """Return the image, and its log-determinants."""
        done, other = self._cut(x)
        z, log_det = self.part(other, condition)
        return torch.cat([done, z.flatten(1)], 1).view_as(x), log_det

    def inverse(self, z: Tensor, condition: FlowCondition) -> Tensor:
        """Return what ``z`` is the image of."""
        done, other = self._cut(z)
        x = self.part.inverse(other, condition)  # type: ignore[operator]
        return torch.cat([done, x.flatten(1)], 1).view_as(z)


class Squeeze(nn.Module):
    """Two by two pixels as channels; the number of numbers stays, and the flattened image is in another order."""

    def forward(self, x: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor]:
        """Return the image, and log-determinants of 0."""
        n, channels, height, width = x.shape  # torch's pixel_unshuffle has no gradient of no sample
        squares = x.reshape(n, channels, height // 2, 2, width // 2, 2).permute(0, 1, 3, 5, 2, 4)
        return squares.reshape(n, 4 * channels, height // 2, width // 2), x.new_zeros(len(x))

    def inverse(self, z: Tensor, condition: FlowCondition) -> Tensor:
        """Return what ``z`` is the image of."""
        n, channels, height, width = z.shape
        squares = z.reshape(n, channels, 2, 2, height // 2, width // 2).permute(0, 1, 4, 2, 5, 3)
        return squares.reshape(z.shape)


class ChannelMix(nn.Module):
    """An invertible matrix over the channels of each pixel, held as P L U; it starts as a rotation."""

    order: Tensor

    def __init__(self, channels: int):
        super().__init__()
        order, lower, upper = torch.linalg.lu(torch.linalg.qr(torch.randn(channels, channels)).Q)
        self.register_buffer("order", order)
        self.lower, self.upper = nn.Parameter(lower.tril(-1)), nn.Parameter(upper.triu(1))
        self.register_buffer("sign", upper.diagonal().sign())
        self.log_scale = nn.Parameter(upper.diagonal().abs().log())

    def _matrix(self, like: Tensor) -> Tensor:
        eye = torch.eye(len(self.order), dtype=like.dtype, device=like.device)
        diagonal = self.sign.to(like.dtype) * self.log_scale.to(like.dtype).exp()  # type: ignore[operator]
        lower, upper = self.lower.to(like.dtype).tril(-1) + eye, self.upper.to(like.dtype).triu(1)
        return self.order.to(like.dtype) @ lower @ (upper + torch.diag(diagonal))

    def forward(self, x: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor]:
        """Return the image, and its log-determinants."""
        z = torch.einsum("ij,njhw->nihw", self._matrix(x), x)
        return z, (x.shape[2] * x.shape[3] * self.log_scale.to(x.dtype).sum()).expand(len(x))

    def inverse(self, z: Tensor, condition: FlowCondition) -> Tensor:
        """Return what ``z`` is the image of."""
        return torch.linalg.solve(self._matrix(z), z.flatten(2)).view_as(z)


class ImageCoupling(nn.Module):
    """Shift and scale half of the channels by what three convolutions make of the other half."""

    def __init__(self, channels: int, hidden: int):
        super().__init__()
        self.curve, self.known = AffineCurve(), channels // 2
        sizes = ((self.known, hidden, 3), (hidden, hidden, 1), (hidden, 2 * (channels - self.known), 3))
        self.layers = nn.ModuleList(nn.Conv2d(a, b, k, padding=k // 2) for a, b, k in sizes)
        for value in self.layers[-1].parameters():
            nn.init.zeros_(value)

    def _halves(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        known, other = x.tensor_split([self.known], 1)
        raw = known
        for place, layer in enumerate(self.layers):
            weight, bias = cast(Tensor, layer.weight), cast(Tensor, layer.bias)
            raw = F.silu(raw) if place else raw
            raw = F.conv2d(raw, weight.to(x.dtype), bias.to(x.dtype), padding=weight.shape[-1] // 2)
        return known, other, raw.unflatten(1, (other.shape[1], 2)).movedim(2, -1)

    def forward(self, x: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor]:
        """Return the image, and its log-determinants."""
        known, other, raw = self._halves(x)
        other, log_slope = self.curve(other, raw)
        return torch.cat([known, other], 1), log_slope.flatten(1).sum(1)

    def inverse(self, z: Tensor, condition: FlowCondition) -> Tensor:
        """Return what ``z`` is the image of."""
        known, other, raw = self._halves(z)
        return torch.cat([known, self.curve.inverse(other, raw)], 1)
