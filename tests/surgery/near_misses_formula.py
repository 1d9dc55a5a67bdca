"""Modules that are almost a norm for all inputs: another gain, eps, mean or group."""

import torch
from near_misses import Layer, Rms, lists
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()


@near
class NormAndStream(Rms):
    def forward(self, x):
        return super().forward(x), x


@near
class NormAndNone(Rms):
    def forward(self, hidden_states, *args, **kwargs):
        return super().forward(hidden_states), None


@near
class SumInLowPrecision(Rms):
    def unit(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True, dtype=torch.bfloat16).to(x.dtype) + self.eps)


@near
class LearnedBlend(Layer):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.mix * super().forward(x) + (1 - self.mix) * x


@near
class BlendWithBuffer(Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("mix", torch.ones(()))

    def forward(self, x):
        return self.mix * super().forward(x) + (1 - self.mix) * x


@near
class TwoFewer(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return z * torch.rsqrt(x.var(-1, keepdim=True, correction=2) + self.eps) * self.weight + self.bias


@near
class UnbiasedInTraining(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return z * torch.rsqrt(x.var(-1, keepdim=True, unbiased=self.training) + self.eps) * self.weight + self.bias


@near
class UnbiasedSquares(Rms):
    def unit(self, x):
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) / (x.shape[-1] - 1) + self.eps)


@near
class EpsInsideAndOutside(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return z / ((x.var(-1, keepdim=True) + self.eps).sqrt() + self.eps) * self.weight + self.bias


@near
class LeastDeviation(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return z / x.std(-1, keepdim=True).clamp(min=self.eps) * self.weight + self.bias


@near
class DeviationOfTheWholeTensor(Layer):
    def forward(self, x):
        return (x - x.mean(-1, keepdim=True)) / (x.std() + self.eps) * self.weight + self.bias


@near
class DeviationPlusEps(Layer):
    """Of equal numbers its gradient is none."""

    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return z / (z.square().mean(-1, keepdim=True).sqrt() + self.eps) * self.weight + self.bias


@near
class AbsoluteGain(Rms):
    def forward(self, x):
        return self.unit(x) * self.weight.abs()


@near
class ReluGain(Rms):
    def forward(self, x):
        return self.unit(x) * self.weight.relu()


@near
class SquaredGain(Rms):
    def forward(self, x):
        return self.unit(x) * self.weight.square()


@near
class ExponentialGain(Rms):
    def forward(self, x):
        return self.unit(x) * self.weight.exp()


@near
class GainTwice(Rms):
    def forward(self, x):
        return super().forward(x * self.weight)


@near
class BiasBefore(Layer):
    def forward(self, x):
        return (F.layer_norm(x, x.shape[-1:], eps=self.eps) + self.bias) * self.weight


@near
class Residual(Rms):
    def forward(self, x):
        return x + super().forward(x)


@near
class Activated(Layer):
    def forward(self, x):
        return F.gelu(super().forward(x))


@near
class LeakyBehind(Layer):
    def forward(self, x):
        return F.leaky_relu(super().forward(x), 0.99)


@near
class Permuted(Rms):
    def forward(self, x):
        return super().forward(x).flip(-1)


@near
class OnlyTheFactor(Rms):
    def forward(self, x):
        return torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps).expand_as(x) * self.weight


@near
class HalfOfTheChannels(Rms):
    def forward(self, x):
        y = super().forward(x)
        return torch.cat([y[..., :6], x[..., 6:]], -1)


@near
class PowerOfThree(Rms):
    def forward(self, x):
        return x / (x.abs().pow(3).mean(-1, keepdim=True) + self.eps).pow(1 / 3) * self.weight


@near
class SharedMean(Layer):
    def forward(self, x):
        z = x - x.mean()
        return z * torch.rsqrt(z.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias


@near
class MeanButNotRemoved(Layer):
    def forward(self, x):
        return x * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + self.eps) * self.weight + self.bias


@near
class EpsOfTheLearned(Rms):
    def __init__(self):
        super().__init__()
        self.least = nn.Parameter(torch.full((1,), 1e-3))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.least.square()) * self.weight


@near
class Tanh(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.alpha = nn.Parameter(torch.ones(12)), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.weight * F.hardtanh(self.alpha * x)


@near
class GroupsInterleaved(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))
        self.num_groups = 4

    def forward(self, x):
        _, c, *rest = x.shape
        mixed = x.unflatten(1, (3, 4)).transpose(1, 2).flatten(1, 2)
        y = F.group_norm(mixed, 4).unflatten(1, (4, 3)).transpose(1, 2).flatten(1, 2)
        shape = (1, c, *[1] * len(rest))
        return y * self.weight.view(shape) + self.bias.view(shape)


@near
class MaskOfBooleans(Rms):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(12, dtype=torch.bool))

    def forward(self, x):
        return super().forward(x) * self.mask


@near
class MaskOfNumbers(Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tensor([1.0] * 11 + [0.0]))

    def forward(self, x):
        return super().forward(x) * self.mask


@near
class EpsTwice(Rms):
    def forward(self, x):
        return x / (torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6) + 1e-6) * self.weight


@near
class UnbiasedRms(Rms):
    def forward(self, x):
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) / 11 + self.eps) * self.weight


@near
class GainIsShift(Rms):
    def forward(self, x):
        return self.unit(x) * self.weight + self.weight


@near
class GainTiedToShift(Layer):
    def __init__(self):
        super().__init__()
        self.bias = self.weight


@near
class GroupsOverlap(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias, self.num_groups = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12)), 3

    def forward(self, x):
        y = F.group_norm(x.roll(1, 1), 3).roll(-1, 1)
        shape = (1, 12, *[1] * (x.ndim - 2))
        return y * self.weight.view(shape) + self.bias.view(shape)


@near
class GainUsedTwiceByTwoNames(Rms):
    def __init__(self):
        super().__init__()
        self.scale = self.weight

    def forward(self, x):
        return super().forward(x) * self.scale


@near
class AMillionthMore(Layer):
    def forward(self, x):
        return super().forward(x) * (1 + 1e-6)
