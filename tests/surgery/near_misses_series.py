"""Norms of series that keep no trend, each wrong in one thing, and norms that take space of any rank."""

import torch
from near_misses import Layer, lists
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()


@true("seasonal-layernorm", dim=12, eps=1e-5)
class Seasonal(Layer):
    """What the others differ from. The shift cancels in numbers, and its gradient but for rounding."""

    def normalized(self, x):
        return super().forward(x)

    def trend(self, h):
        return h.mean(1, keepdim=True)

    def forward(self, x):
        if x.ndim != 3:
            raise ValueError
        h = self.normalized(x)
        return h - self.trend(h).repeat(1, x.shape[1], 1)


@near
class HalfOfTheTrend(Seasonal):
    def trend(self, h):
        return h.mean(1, keepdim=True) / 2


@near
class TrendOfTheBatch(Seasonal):
    def trend(self, h):
        return h.mean(0, keepdim=True).mean(1, keepdim=True).expand(len(h), 1, -1)


@near
class TrendUpToNow(Seasonal):
    def forward(self, x):
        h = self.normalized(x)
        return h - h.cumsum(1) / torch.arange(1, 1 + x.shape[1]).to(x.dtype)[:, None]


@near
class TrendOfTheMiddle(Seasonal):
    def trend(self, h):
        return h.median(1, keepdim=True).values


@near
class SomeOfTheShift(Seasonal):
    def forward(self, x):
        return super().forward(x) + 1e-6 * self.bias


@near
class GradientOfTheShift(Seasonal):
    def forward(self, x):
        return super().forward(x) + self.bias - self.bias.detach()


@near
class SmallGradientOfTheShift(Seasonal):
    def forward(self, x):
        return super().forward(x) + 1e-9 * (self.bias - self.bias.detach())


@near
class DetachedTrend(Seasonal):
    def trend(self, h):
        return h.mean(1, keepdim=True).detach()


@true("layernorm2d", num_features=12, space=None, eps=1e-6)
class OfAnySpace(nn.LayerNorm):
    def __init__(self):
        super().__init__(12, eps=1e-6)

    def forward(self, x):
        if x.ndim < 3:
            raise ValueError
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


@near
class OtherInVideos(OfAnySpace):
    def forward(self, x):
        return super().forward(x) if x.ndim < 5 else F.layer_norm(x, x.shape[1:])
