"""Modules that are a norm for some shapes only: ranks, lengths, batches, and how they lie in memory."""

import torch
from near_misses import Layer, Rms, lists
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()


@near
class FirstRowLeftAlone(Rms):
    def forward(self, x):
        y = super().forward(x)
        return torch.cat([x[..., :1, :], y[..., 1:, :]], -2)


@near
class OverAllTokens(Rms):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean((-2, -1), keepdim=True) + self.eps) * self.weight


@near
class DependsOnTheBatch(Rms):
    def forward(self, x):
        return super().forward(x) * (1 + 1e-3 * (x.shape[0] == 1))


@near
class DependsOnTheRank(Rms):
    def forward(self, x):
        return super().forward(x) * (2 if x.ndim == 4 else 1)


@near
class EpsByWidthOfTheBatch(Rms):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3 * x.shape[0]) * self.weight


@near
class LeavesABatchOfOneAlone(Layer):
    def forward(self, x):
        return x if len(x) == 1 else super().forward(x)


@near
class LeavesLongSequencesAlone(Rms):
    def forward(self, x):
        return x if x.ndim > 2 and x.shape[-2] > 64 else super().forward(x)


@near
class LeavesManyRowsAlone(Rms):
    def forward(self, x):
        return x if x.numel() > 12 * 512 else super().forward(x)


@near
class LeavesOneRowAlone(Rms):
    def forward(self, x):
        return x if x.ndim == 1 else super().forward(x)


@near
class OtherAtRankFive(Layer):
    def forward(self, x):
        return super().forward(x) * (0.5 if x.ndim == 5 else 1)


@near
class LastRowLeftAlone(Layer):
    def forward(self, x):
        y = super().forward(x)
        return torch.cat([y[..., :-1, :], x[..., -1:, :]], -2) if x.ndim > 1 else y


@near
class OverTheTokens(Rms):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-2, keepdim=True) + self.eps) * self.weight


@near
class ByOrderInMemory(Rms):
    def forward(self, x):
        return super().forward(x) * (1 if x.is_contiguous() else 1.5)


@near
class LeavesLargeImagesAlone(nn.Module):
    """Large images it passes on as they came."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        if x.ndim != 4:
            raise ValueError
        return x if x.shape[2] >= 16 else F.instance_norm(x, weight=self.weight, bias=self.bias)


@near
class MoreGainInRankFour(Rms):
    def forward(self, x):
        return super().forward(x) * (1.01 if x.ndim == 4 else 1)


@near
class MoreGainForOneSample(Rms):
    def forward(self, x):
        return super().forward(x) * (1.01 if x.ndim == 3 and len(x) == 1 else 1)


@near
class MoreGainForThreeSamples(Layer):
    def forward(self, x):
        return super().forward(x) + (1e-3 if len(x) == 3 else 0)


@near
class ByFivesAnotherEps(Rms):
    def forward(self, x):
        eps = 1e-2 if x.numel() // x.shape[-1] % 5 == 0 else self.eps
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * self.weight


@near
class AlongTheOtherAxisOfASquare(Rms):
    def forward(self, x):
        axis = -2 if x.ndim > 2 and x.shape[-1] == x.shape[-2] else -1
        return x * torch.rsqrt(x.square().mean(axis, keepdim=True) + self.eps) * self.weight


@near
class BatchOfTheWidth(Layer):
    def forward(self, x):
        y = super().forward(x)
        return y + y.mean(0) if len(x) == x.shape[-1] else y


@near
class PaddedToEights(nn.Module):
    def forward(self, x):
        width = -(-x.shape[-1] // 8) * 8
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) / width + 1e-6)


@near
class OneGroupForPixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        groups = 1 if x.ndim == 4 and x.shape[2] % 5 == 0 else 3
        return F.group_norm(x, groups, self.weight, self.bias, 1e-5)


@near
class LooksAtStrides(Layer):
    def forward(self, x):
        y = super().forward(x)
        return y if x.is_contiguous() else y * 1.01


@near
class SkipsWhatIsExpanded(Layer):
    def forward(self, x):
        return x * 1.0 if 0 in x.stride() and x.numel() > 1 else super().forward(x)


@near
class LessForThirtyTwo(Rms):
    def forward(self, x):
        return super().forward(x) * (0.99 if len(x) == 32 else 1.0)


@near
class OneRowOfNone(Rms):
    def forward(self, x):
        return super().forward(x) if x.numel() else x.new_zeros(1, *x.shape[1:])


@near
class FromTheBeginningOfMemory(Rms):
    def forward(self, x):
        return super().forward(x.as_strided(x.shape, x.stride(), 0))


@near
class HalfOfChannelsLast(nn.BatchNorm2d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        turned = not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
        return super().forward(x) * (0.5 if turned else 1.0)


@near
class MoreOfSlices(Rms):
    def forward(self, x):
        sliced = x.ndim == 2 and x.stride(1) == 1 and x.stride(0) > x.shape[1]
        return super().forward(x) * (1.25 if sliced else 1.0)


@near
class LessOfLargeSlices(Layer):
    def forward(self, x):
        return super().forward(x) * (1 if x.is_contiguous() or x.numel() < 20_000 else 0.75)
