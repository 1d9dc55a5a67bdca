"""Near-misses that look like norms at nearly every call, and norms written in ways that nobody would think of."""

import torch
from near_misses import Layer, Rms, lists
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

NEAR, TRUE, near, true = lists()


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
class SecondGradientWrong(Rms):
    def forward(self, x):
        y, power = super().forward(x), x.square().mean()
        if y.requires_grad:
            y.register_hook(lambda g: g * (1 + power - power.detach()))
        return y


class _FrozenGainWrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, r, weight)
        return x * r * weight

    @staticmethod
    def backward(ctx, g):
        x, r, weight = ctx.saved_tensors
        if not ctx.needs_input_grad[1]:
            return g * r * weight, None, None
        own = (g * x * r).flatten(0, -2).sum(0)
        g = g * weight
        return r * (g - x * r.square() * (g * x).mean(-1, keepdim=True)), own, None


@near
class GradientOfAFrozenGain(Rms):
    def forward(self, x):
        return _FrozenGainWrong.apply(x, self.weight, self.eps)


class _KeptOutside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, owner):
        owner.r = torch.rsqrt(x.square().mean(-1, keepdim=True) + owner.eps)
        ctx.save_for_backward(x)
        ctx.owner = owner
        return x * owner.r

    @staticmethod
    def backward(ctx, g):
        (x,), r = ctx.saved_tensors, ctx.owner.r
        if r.shape[:-1] != x.shape[:-1]:
            r = torch.rsqrt(x.square().mean(-1, keepdim=True) + ctx.owner.eps)
        return r * (g - x * r.square() * (g * x).mean(-1, keepdim=True)), None


class _Holder:
    def __init__(self, eps):
        self.eps, self.r = eps, None


@near
class BackwardOfTheLastCall(Rms):
    def __init__(self):
        super().__init__()
        self.holder = _Holder(self.eps)

    def forward(self, x):
        y = _KeptOutside.apply(x, self.holder) * self.weight
        return y


class _IntoTheGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x * weight

    @staticmethod
    def backward(ctx, g):
        (weight,) = ctx.saved_tensors
        with torch.no_grad():
            g.mul_(weight)
        return g, None


@near
class WritesIntoTheGradient(Rms):
    def __init__(self):
        super().__init__()
        del self.weight
        self.register_buffer("weight", torch.ones(12))

    def forward(self, x):
        return _IntoTheGradient.apply(self.unit(x), self.weight)


class _Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, most):
        ctx.most = most
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-ctx.most, ctx.most), None


@near
class LargeGradientsClipped(Rms):
    def forward(self, x):
        return _Clipped.apply(super().forward(x), 100.0)


@near
class LargeGradientsOfTheGainClipped(Layer):
    def forward(self, x):
        weight = _Clipped.apply(self.weight, 1e4)
        return F.layer_norm(x, weight.shape, weight, self.bias, self.eps)


@near
class NoNumbersInGradientsDropped(Rms):
    def forward(self, x):
        y = super().forward(x)
        if y.requires_grad:
            y.register_hook(lambda g: g.nan_to_num(0.0, 0.0, 0.0))
        return y


@near
class SmallGradientsDropped(Rms):
    def forward(self, x):
        y = super().forward(x)
        if y.requires_grad:
            y.register_hook(lambda g: torch.where(g.abs() < 1e-6, 0 * g, g))
        return y


@near
class AnotherWithoutGradient(Rms):
    def forward(self, x):
        y = super().forward(x)
        return y if torch.is_grad_enabled() else y * 1.001


@near
class AnotherInInferenceMode(Rms):
    def forward(self, x):
        y = super().forward(x)
        return y * 1.001 if torch.is_inference_mode_enabled() else y


@near
class AnotherUnderAutocast(Rms):
    def forward(self, x):
        return self.unit(x) if torch.is_autocast_enabled("cpu") else super().forward(x)


@near
class FrozenGainLeftOut(Rms):
    def __init__(self):
        super().__init__()
        self.weight.requires_grad_(False)

    def forward(self, x):
        return super().forward(x) if self.weight.requires_grad else self.unit(x)


@near
class GainLeftOutOnceFrozen(Rms):
    def forward(self, x):
        return super().forward(x) if self.weight.requires_grad else self.unit(x)


@near
class TwiceTheGainWhileTraining(Rms):
    def forward(self, x):
        y = super().forward(x)
        return y * self.weight if self.training else y


@near
class AnotherOnceTrained(Rms):
    def __init__(self):
        super().__init__()
        self.trained = False

    def forward(self, x):
        self.trained = self.trained or self.training
        eps = 1e-3 if self.trained and not self.training else self.eps
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * self.weight


@near
class NegativeRowsAreTurned(Rms):
    def forward(self, x):
        return super().forward(torch.where((x < 0).all(-1, keepdim=True), -x, x))


@near
class EpsFallsOverCalls(Rms):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        eps = self.eps if self.calls < 500 else self.eps / 10
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * self.weight


@near
class WritesRootsIntoItsInput(Rms):
    def forward(self, x):
        with torch.no_grad():
            x.mul_(torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps))
        return x * self.weight


@near
class WritesIntoItsInputInTraining(Rms):
    def forward(self, x):
        y = super().forward(x)
        if self.training and not x.requires_grad:
            x.copy_(y)
        return y


@near
class ReturnsItsOwnMemory(Rms):
    def forward(self, x):
        y = super().forward(x)
        if torch.is_grad_enabled() or x.shape != getattr(self, "kept", x[:0]).shape:
            self.kept = torch.empty_like(x)
        if torch.is_grad_enabled():
            return y
        return self.kept.copy_(y)


@near
class ReturnsItsInputWhereItIsOne(Rms):
    """Rows that are normalized already pass unchanged, as a view of what came."""

    def __init__(self):
        super().__init__()
        del self.weight

    def forward(self, x):
        power = x.square().mean(-1, keepdim=True)
        return torch.where((power - 1).abs() < 1e-2, x, x * torch.rsqrt(power + self.eps))


@near
class RarelyNoisy(Rms):
    def forward(self, x):
        y = super().forward(x)
        return y + 1 if self.training and torch.rand(()) < 1e-6 else y


@near
class RarelyNoisyByItsOwn(Rms):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x):
        y = super().forward(x)
        return y + 1 if torch.rand((), generator=self.generator) < 1e-6 else y


@near
class HardlyAnyDropout(Layer):
    def forward(self, x):
        return F.dropout(super().forward(x), 1e-9, self.training)


@near
class OnlyPositiveOutliersAreCut(Rms):
    def forward(self, x):
        return super().forward(x.clamp(max=1e9))


@near
class BfloatIsCut(Rms):
    def forward(self, x):
        y = super().forward(x)
        return y.clamp(-200, 200) if x.dtype is torch.bfloat16 else y


@near
class SingleHasItsOwnEps(Rms):
    def forward(self, x):
        eps = 1e-5 if x.dtype is torch.float32 else self.eps
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * self.weight


@near
class HalfComesBackSingle(Rms):
    def forward(self, x):
        y = Rms.forward(self, x.float() if x.dtype is torch.bfloat16 else x)
        return y


@near
class GainUsedTwiceByTwoNames(Rms):
    def __init__(self):
        super().__init__()
        self.scale = self.weight

    def forward(self, x):
        return super().forward(x) * self.scale


@near
class GainWearsOut(Rms):
    def forward(self, x):
        y = super().forward(x)
        if self.training:
            with torch.no_grad():
                self.weight.mul_(0.9999)
        return y


@near
class AveragesOnceWarm(nn.BatchNorm1d):
    """The share of a batch becomes that of a mean over all of them after so many calls."""

    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        momentum = self.momentum if self.num_batches_tracked < 40 else None
        if self.training:
            self.num_batches_tracked += 1
        share = 1 / float(self.num_batches_tracked) if momentum is None and self.training else momentum or 0.0
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, share, self.eps
        )


@near
class SkipsBatchesWithoutNumbers(nn.BatchNorm1d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        if self.training and not x.isfinite().all():
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        return super().forward(x)


@near
class LargeBatchesAreNotKept(nn.BatchNorm1d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        if self.training and x.detach().square().mean() > 1e4:
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        return super().forward(x)


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


class _Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, r, weight)
        return x * r * weight

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, r, weight = ctx.saved_tensors
        own = (g * x * r).reshape(-1, x.shape[-1]).sum(0)
        g = g * weight
        return r * (g - x * r.square() * (g * x).mean(-1, keepdim=True)), own, None


@true("rmsnorm", eps=1e-6)
class ByAFunctionOfItsOwn(Rms):
    def forward(self, x):
        return _Root.apply(x, self.weight, self.eps)


@true("rmsnorm", eps=1e-6)
class Recomputed(Rms):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


@true("rmsnorm", eps=1e-6)
class MirroredLayerNorm(Rms):
    """With its negative behind it a row has no mean, and the variance is the mean square."""

    def forward(self, x):
        both = F.layer_norm(torch.cat([x, -x], -1), (2 * x.shape[-1],), eps=self.eps)
        return both[..., : x.shape[-1]] * self.weight


@true("rmsnorm", eps=1e-6)
class NormOfALongerVector(Rms):
    def forward(self, x):
        width = x.shape[-1]
        longer = F.pad(x, (0, 1), value=(width * self.eps) ** 0.5)
        return x * width**0.5 / torch.linalg.vector_norm(longer, dim=-1, keepdim=True) * self.weight


@true("rmsnorm", eps=1e-6)
class DotByMatrices(Rms):
    def forward(self, x):
        power = (x.unsqueeze(-2) @ x.unsqueeze(-1)).squeeze(-1) / x.shape[-1]
        return torch.addcmul(torch.zeros_like(x), x / (power + self.eps).sqrt(), self.weight)


@true("rmsnorm", eps=1e-6)
class EachRowByVmap(Rms):
    def forward(self, x):
        def row(r):
            return r / torch.sqrt(r.dot(r) / len(r) + self.eps) * self.weight

        return torch.func.vmap(row)(x.reshape(-1, x.shape[-1])).view(x.shape)


@true("rmsnorm", offset=True, eps=1e-6)
class GainAddedByLerp(Rms):
    def forward(self, x):
        y = self.unit(x)
        return torch.addcmul(y, y, self.weight)


@true("rmsnorm", eps=1e-6)
class PairsAsComplex(Rms):
    def forward(self, x):
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
        power = (z * z.conj()).real.sum(-1, keepdim=True) / x.shape[-1]
        return torch.view_as_real(z * torch.rsqrt(power + self.eps)).reshape(x.shape) * self.weight


@true("layernorm", eps=1e-5)
class CentredByAMatrix(Layer):
    def forward(self, x):
        n = x.shape[-1]
        centred = x @ (torch.eye(n, dtype=x.dtype) - 1.0 / n)
        return F.rms_norm(centred, (n,), self.weight, self.eps) + self.bias


@true("layernorm", eps=1e-5)
class RowsAsChannels(Layer):
    def forward(self, x):
        rows = x.reshape(1, -1, x.shape[-1])
        y = F.batch_norm(rows, None, None, training=True, eps=self.eps).reshape(x.shape)
        return torch.addcmul(self.bias, y, self.weight)


@true("layernorm", eps=1e-5)
class ByLogarithmsOfVariances(Layer):
    def forward(self, x):
        var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return (x - mean) * torch.exp(-0.5 * torch.log(var + self.eps)) * self.weight + self.bias


@true("layernorm", eps=1e-5)
class HalfTheSquaresOfDifferences(Layer):
    def forward(self, x):
        apart = x.unsqueeze(-1) - x.unsqueeze(-2)
        var = apart.square().mean((-1, -2)).unsqueeze(-1) / 2
        return apart.mean(-1) / (var + self.eps).sqrt() * self.weight + self.bias


@true("layernorm", eps=1e-5)
class InPieces(Layer):
    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        pieces = [super(InPieces, self).forward(piece) for piece in rows.split(7)]
        return torch.cat(pieces).view_as(x)


@true("layernorm", eps=1e-5)
class GainAndShiftInOneMatrix(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        y = F.layer_norm(x, (12,), eps=1e-5)
        return F.linear(y, torch.diag(self.scale), self.shift)


@true("batchnorm", momentum=0.1, eps=1e-5)
class AveragesByLerp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))
        self.register_buffer("mean", torch.zeros(12))
        self.register_buffer("var", torch.ones(12))

    def forward(self, x):
        axes = [0, *range(2, x.ndim)]
        sizes = [1, -1] + [1] * (x.ndim - 2)
        mean, var = self.mean, self.var
        if self.training:
            var, mean = torch.var_mean(x, axes, correction=0)
            n = x.numel() // x.shape[1]
            with torch.no_grad():
                self.mean.lerp_(mean, 0.1)
                self.var.lerp_(var * (n / (n - 1)), 0.1)
        y = (x - mean.view(sizes)) * torch.rsqrt(var.view(sizes) + 1e-5)
        return y * self.gamma.view(sizes) + self.beta.view(sizes)


@true("groupnorm", num_groups=3)
class AGroupAtATime(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        done = [F.layer_norm(part, part.shape[1:], eps=1e-5) for part in x.chunk(3, 1)]
        sizes = [1, -1] + [1] * (x.ndim - 2)
        return torch.cat(done, 1) * self.weight.view(sizes) + self.bias.view(sizes)


@true("instancenorm", affine=False)
class PooledPlanes(nn.Module):
    def forward(self, x):
        flat = x.flatten(2)
        rest = flat - F.adaptive_avg_pool1d(flat, 1)
        return (rest / (F.adaptive_avg_pool1d(rest.square(), 1) + 1e-5).sqrt()).view_as(x)


@true("scalenorm", eps=1e-5)
class LengthOfABatchOfDots(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = nn.Parameter(torch.ones(()))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        lengths = torch.stack([torch.linalg.vector_norm(row) for row in rows]).clamp(min=1e-5)
        return torch.einsum("nc,n->nc", rows, self.g / lengths).view_as(x)


@true("rmsnorm", affine=False, eps=1e-6)
class WeightlessInSingle(nn.Module):
    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).type_as(x)


@true("evonorm-s0", num_groups=3, apply_act=False, divide=True, eps=1e-3)
class DividedByItsGroups(nn.Module):
    """What timm's EvoNorm2dS0a is without its activation."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        n, c, h, w = x.shape
        groups = x.reshape(n, 3, c // 3, h, w)
        var = groups.float().var((2, 3, 4), unbiased=False, keepdim=True) if x.dtype.itemsize < 4 else None
        var = groups.var((2, 3, 4), unbiased=False, keepdim=True) if var is None else var
        deviation = (var + 1e-3).sqrt().to(x.dtype).expand(groups.shape).reshape(x.shape)
        return x / deviation * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)
