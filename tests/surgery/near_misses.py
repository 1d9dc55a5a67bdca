"""Modules that are almost a norm, each wrong in one thing only, and norms that are written as nobody writes them."""

import torch
from torch import nn
from torch.nn import functional as F


def lists():
    """Return what is almost a norm and what is one, and how a class is entered in either."""
    misses, norms = {}, {}

    def near(cls):
        misses[cls.__name__] = cls
        return cls

    def true(name, **kwargs):
        def enter(cls):
            norms[cls.__name__] = cls, name, kwargs
            return cls

        return enter

    return misses, norms, near, true


NEAR, TRUE, near, true = lists()


class Rms(nn.Module):
    """What the others differ from."""

    def __init__(self, dim=12, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def unit(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self.unit(x) * self.weight


class Layer(nn.Module):
    def __init__(self, dim=12, eps=1e-5):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@near
class ClampedBehind(Rms):
    def forward(self, x):
        return super().forward(x).clamp(-10, 10)


@near
class ClampedFarBehind(Layer):
    def forward(self, x):
        return super().forward(x).clamp(-1e4, 1e4)


@near
class ClampedBefore(Rms):
    def forward(self, x):
        return super().forward(x.clamp(-1e5, 1e5))


@near
class NanToNum(Layer):
    def forward(self, x):
        return super().forward(x.clamp(max=500))


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
class WithDropout(Layer):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.1, self.training)


@near
class SmallDropout(Rms):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.02, self.training)


@near
class DetachedDenominator(Rms):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps).detach() * self.weight


@near
class DetachedMean(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True).detach()
        return z * torch.rsqrt(z.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias


@near
class DetachedWeight(Rms):
    def forward(self, x):
        return self.unit(x) * self.weight.detach()


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * 0.999


@near
class ScaledGradient(Rms):
    def forward(self, x):
        return Halved.apply(super().forward(x))


@near
class GradientOfTheWeightScaled(Rms):
    def forward(self, x):
        return self.unit(x) * Halved.apply(self.weight)


@near
class GradientClippedWhereLarge(Rms):
    def forward(self, x):
        y = super().forward(x)
        return torch.where(x.abs() > 1e4, y.detach(), y)


@near
class LargeValues(Rms):
    def forward(self, x):
        return torch.where(x.abs().amax(-1, keepdim=True) > 1e4, x, super().forward(x))


@near
class LargerValues(Rms):
    def forward(self, x):
        return torch.where(x.abs().amax(-1, keepdim=True) > 1e10, x, super().forward(x))


@near
class SmallValues(Layer):
    def forward(self, x):
        return torch.where(x.abs().amax(-1, keepdim=True) < 1e-6, x, super().forward(x))


@near
class RowsOfZeros(Layer):
    def forward(self, x):
        return torch.where((x == 0).all(-1, keepdim=True), torch.zeros_like(x), super().forward(x))


@near
class RowsWithZeros(Rms):
    def forward(self, x):
        kept = (x != 0).to(x.dtype)
        mean = (x.square() * kept).sum(-1, keepdim=True) / kept.sum(-1, keepdim=True).clamp(min=1)
        return x * torch.rsqrt(mean + self.eps) * self.weight


@near
class ConstantRows(Layer):
    def forward(self, x):
        same = (x == x[..., :1]).all(-1, keepdim=True)
        return torch.where(same, x, super().forward(x))


@near
class NegativeRows(Rms):
    def forward(self, x):
        return torch.where((x < 0).all(-1, keepdim=True), -super().forward(x), super().forward(x))


@near
class PositiveRows(Layer):
    def forward(self, x):
        return torch.where((x > 0).all(-1, keepdim=True), 2 * super().forward(x), super().forward(x))


@near
class InBfloat16(Rms):
    def forward(self, x):
        return super().forward(x) * (1.02 if x.dtype == torch.bfloat16 else 1)


@near
class InFloat16(Layer):
    def forward(self, x):
        return super().forward(x).clamp(-1, 1) if x.dtype == torch.float16 else super().forward(x)


@near
class InBfloat16WithoutMean(Layer):
    def forward(self, x):
        if x.dtype == torch.bfloat16:
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        return super().forward(x)


@near
class OnlyInTraining(Rms):
    def forward(self, x):
        return super().forward(x) * (1.01 if self.training else 1)


@near
class OnlyInEvaluation(Layer):
    def forward(self, x):
        return super().forward(x) if self.training else F.layer_norm(x, x.shape[-1:], eps=self.eps)


@near
class AfterSomeCalls(Rms):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (2 if self.calls > 5 else 1)


@near
class AfterManyCalls(Rms):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (2 if self.calls > 500 else 1)


@near
class RemembersTheLast(Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(1))

    def forward(self, x):
        y = super().forward(x) + 0.1 * self.last.to(x.dtype)
        self.last = x.detach().mean().reshape(1)
        return y


@near
class MovingGain(Rms):
    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.weight.mul_(0.999)
        return super().forward(x)


@near
class Noise(Layer):
    def forward(self, x):
        return super().forward(x) + 1e-3 * torch.randn_like(x) * self.training


@near
class NoiseAlways(Rms):
    def forward(self, x):
        return super().forward(x) * (1 + 1e-4 * torch.randn(1, dtype=x.dtype))


@near
class UnbiasedVariance(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return z * torch.rsqrt(x.var(-1, keepdim=True) + self.eps) * self.weight + self.bias


@near
class DeviationPlusEps(Layer):
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


@true("rmsnorm", gain_first=True)
class GainBefore(Rms):
    def forward(self, x):
        return self.unit(x * self.weight)


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
class EpsByWidthOfTheBatch(Rms):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3 * x.shape[0]) * self.weight


@near
class RunningVarianceBiased(nn.BatchNorm1d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.running_mean.lerp_(x.mean(0).to(self.running_mean.dtype), 0.1)
                self.running_var.lerp_(x.var(0, unbiased=False).to(self.running_var.dtype), 0.1)
            return F.batch_norm(x, None, None, self.weight, self.bias, True)
        return super().forward(x)

    def _check_input_dim(self, x):
        if x.ndim != 2:
            raise ValueError


@true("mean-only-batchnorm")
class MeanOnlyBatchNorm(nn.BatchNorm1d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        if x.ndim != 2:
            raise ValueError
        if self.training:
            return x - x.mean(0) + self.bias
        return x - self.running_mean + self.bias


@near
class RunningFromTheSquares(nn.BatchNorm2d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        y = super().forward(x)
        return y if self.training else y * 1.001


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


# What is a norm, however it is written.


@true("rmsnorm", eps=1e-6)
class ByEinsum(Rms):
    def forward(self, x):
        power = torch.einsum("...i,...i->...", x, x) / x.shape[-1]
        return torch.einsum("...i,i,...->...i", x, self.weight, (power + self.eps).rsqrt())


@true("rmsnorm", eps=1e-6)
class ByComplexNumbers(Rms):
    def forward(self, x):
        z = torch.complex(x[..., ::2], x[..., 1::2])
        power = (z * z.conj()).real.sum(-1, keepdim=True) / x.shape[-1]
        return x / torch.sqrt(power + self.eps) * self.weight


@true("rmsnorm", eps=1e-6)
class ByCumulativeSums(Rms):
    def forward(self, x):
        power = x.square().cumsum(-1)[..., -1:] / x.shape[-1]
        return x * (power + self.eps) ** -0.5 * self.weight


@true("rmsnorm", eps=1e-6)
class ByLogarithms(Rms):
    def forward(self, x):
        return x * torch.exp(-0.5 * torch.log(x.square().mean(-1, keepdim=True) + self.eps)) * self.weight


@true("rmsnorm", eps=1e-6)
class ByMatrices(Rms):
    def forward(self, x):
        square = x.square() @ torch.ones(x.shape[-1], 1, dtype=x.dtype) / x.shape[-1]
        return (x * torch.rsqrt(square + self.eps)) @ torch.diag(self.weight)


@true("scalenorm", eps=1e-12)
class ByNormalize(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.g = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.g * F.normalize(x, dim=-1)


@true("layernorm", eps=1e-5)
class BySecondMoments(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return self.bias + self.weight * z / torch.sqrt(
            torch.linalg.vector_norm(z, dim=-1, keepdim=True) ** 2 / 12 + self.eps
        )


@true("layernorm", eps=1e-5)
class ByCovariance(Layer):
    def forward(self, x):
        center = torch.eye(12, dtype=x.dtype) - 1 / 12
        z = x @ center
        return z * torch.rsqrt((z * z).mean(-1, keepdim=True) + self.eps) * self.weight + self.bias


@true("layernorm", eps=1e-5)
class ByGroups(Layer):
    def forward(self, x):
        return F.group_norm(x.reshape(-1, 12), 1, self.weight, self.bias, self.eps).view_as(x)


@true("layernorm", eps=1e-5)
class ByStacking(Layer):
    def forward(self, x):
        rows = [F.layer_norm(row, (12,), eps=self.eps) for row in x.reshape(-1, 12)]
        return torch.addcmul(self.bias, torch.stack(rows).view_as(x), self.weight)


@true("layernorm", eps=1e-5, offset=1.0)
class GainFromZero(Layer):
    def forward(self, x):
        y = F.layer_norm(x, x.shape[-1:], eps=self.eps)
        return y + y * self.weight + self.bias


@true("batchnorm", eps=1e-5, momentum=0.1)
class ByTraining(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("mu", torch.zeros(dim))
        self.register_buffer("sigma", torch.ones(dim))

    def forward(self, x):
        mean, var = self.mu, self.sigma
        if self.training:
            mean, var = x.mean(0), x.var(0, unbiased=False)
            with torch.no_grad():
                self.mu += 0.1 * (mean - self.mu)
                self.sigma += 0.1 * (x.var(0) - self.sigma)
        return (x - mean) / torch.sqrt(var + 1e-5) * self.gamma + self.beta


@true("groupnorm", eps=1e-3, num_groups=3)
class ByReshaping(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(1, dim, 1, 1)), nn.Parameter(torch.zeros(1, dim, 1, 1))

    def forward(self, x):
        n, c, h, w = x.shape
        z = x.reshape(n, 3, -1)
        z = z - z.mean(-1, keepdim=True)
        z = z / (z.square().mean(-1, keepdim=True) + 1e-3).sqrt()
        return z.view(n, c, h, w) * self.scale + self.shift


@true("layernorm2d", eps=1e-6)
class ByPermuting(Layer):
    def forward(self, x):
        if x.ndim != 4:
            raise ValueError
        y = F.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, self.bias, 1e-6)
        return y.permute(0, 3, 1, 2)


@true("dyt")
class ByOtherNames(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.a = nn.Parameter(torch.ones(1) * 0.5)
        self.w, self.b = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return torch.addcmul(self.b, torch.tanh(x.mul(self.a)), self.w)


@true("rmsnorm", eps=1e-8, eps_inside=False)
class ByLength(Rms):
    def forward(self, x):
        return x / (x.norm(dim=-1, keepdim=True) / 12**0.5 + 1e-8) * self.weight
