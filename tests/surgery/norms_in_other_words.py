"""Norms that are written as nobody writes them."""

import torch
from near_misses import Layer, Rms, lists
from near_misses_gradients import SlopesOfContiguousOnes
from near_misses_state import MovesByHand
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

NEAR, TRUE, near, true = lists()


@true("rmsnorm", gain_first=True)
class GainBefore(Rms):
    def forward(self, x):
        return self.unit(x * self.weight)


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


@true("rmsnorm", eps=1e-6)
class ByEinsum(Rms):
    def forward(self, x):
        power = torch.einsum("...i,...i->...", x, x) / x.shape[-1]
        return torch.einsum("...i,i,...->...i", x, self.weight, (power + self.eps).rsqrt())


@true("rmsnorm", eps=1e-6)
class EvenAndOddAsComplex(Rms):
    def forward(self, x):
        z = torch.complex(x[..., ::2], x[..., 1::2])
        power = (z * z.conj()).real.sum(-1, keepdim=True) / x.shape[-1]
        return x / torch.sqrt(power + self.eps) * self.weight


@true("rmsnorm", eps=1e-6)
class ByCumulativeSquares(Rms):
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


@true("layernorm", eps=1e-5)
class CenteredTwice(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return F.layer_norm(z, (12,), self.weight, self.bias, self.eps)


@true("layernorm", eps=1e-5)
class ByWelford(Layer):
    def forward(self, x):
        mean, power = torch.zeros_like(x[..., 0]), torch.zeros_like(x[..., 0])
        for i in range(12):
            apart = x[..., i] - mean
            mean = mean + apart / (i + 1)
            power = power + apart * (x[..., i] - mean)
        z = (x - mean[..., None]) / torch.sqrt(power[..., None] / 12 + self.eps)
        return z * self.weight + self.bias


@true("layernorm", eps=1e-5)
class ByVarMean(Layer):
    def forward(self, x):
        var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return (x - mean) / (var + self.eps) ** 0.5 * self.weight + self.bias


@true("layernorm", eps=1e-5)
class ByInstances(Layer):
    def forward(self, x):
        y = F.instance_norm(x.reshape(1, -1, 12), eps=self.eps)
        return y.view_as(x) * self.weight + self.bias


@true("layernorm", eps=1e-5)
class ByPooling(Layer):
    def forward(self, x):
        rows = x.reshape(-1, 1, 12)
        z = rows - F.avg_pool1d(rows, 12)
        return (z / (F.avg_pool1d(z * z, 12) + self.eps).sqrt()).view_as(x) * self.weight + self.bias


@true("layernorm", eps=1e-5)
class ByTraceless(Layer):
    """Torch's native call."""

    def forward(self, x):
        return torch.native_layer_norm(x, [12], self.weight, self.bias, self.eps)[0]


@true("rmsnorm", eps=1e-6)
class ByFunction(Rms):
    def forward(self, x):
        return F.rms_norm(x, (12,), self.weight, 1e-6)


@true("rmsnorm", eps=1e-6)
class ByParseval(Rms):
    def forward(self, x):
        power = torch.fft.fft(x, norm="ortho").abs().square().mean(-1, keepdim=True)
        return x / (power + self.eps).sqrt() * self.weight


@true("rmsnorm", eps=1e-6)
class ByMapping(Rms):
    def forward(self, x):
        row = lambda v: v * torch.rsqrt(v.dot(v) / 12 + self.eps) * self.weight  # noqa: E731
        return torch.vmap(row)(x.reshape(-1, 12)).view_as(x)


class Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        factor = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, weight, factor)
        return x * factor * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight, factor = ctx.saved_tensors
        n, g = x * factor, grad * weight
        down = factor * (g - n * (g * n).mean(-1, keepdim=True))
        return down, (grad * n).reshape(-1, 12).sum(0)


@true("rmsnorm", eps=1e-6)
class ByHand(Rms):
    def forward(self, x):
        return Root.apply(x, self.weight)


@true("rmsnorm", eps=1e-6)
class ByBatchedProducts(Rms):
    def forward(self, x):
        rows = x.reshape(-1, 1, 12)
        power = torch.bmm(rows, rows.transpose(1, 2)) / 12
        return (rows * torch.rsqrt(power + self.eps)).view_as(x) * self.weight


@true("rmsnorm", eps=1e-6)
class GainOfThreeAxes(Rms):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 1, 12))

    def forward(self, x):
        return self.unit(x) * self.weight.view(12)


@true("groupnorm", num_groups=3, eps=1e-5)
class AttributesLie(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))
        self.num_groups, self.eps = 4, 1e-3

    def forward(self, x):
        return F.group_norm(x, 3, self.weight, self.bias, 1e-5)


@true("batchnorm", momentum=0.9, eps=1e-5)
class MomentumOfKeras(nn.Module):
    """Momentum is what is kept; here little is."""

    def __init__(self, momentum=0.1):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))
        self.register_buffer("moving_mean", torch.zeros(12))
        self.register_buffer("moving_variance", torch.ones(12))
        self.momentum = momentum

    def forward(self, x):
        return F.batch_norm(
            x, self.moving_mean, self.moving_variance, self.gamma, self.beta, self.training, 1 - self.momentum
        )


@true("instancenorm", eps=1e-5)
class InstancesByBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        n, c, h, w = x.shape
        y = F.batch_norm(x.reshape(1, n * c, h, w), None, None, training=True, eps=1e-5).view_as(x)
        return y * self.weight[:, None, None] + self.bias[:, None, None]


@true("groupnorm", num_groups=4, eps=1e-6)
class GroupsByLayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        n, c = x.shape[:2]
        groups = x.reshape(n, 4, -1)
        y = F.layer_norm(groups, groups.shape[2:], eps=1e-6).view_as(x)
        shape = (1, c, *[1] * (x.ndim - 2))
        return torch.addcmul(self.bias.view(shape), y, self.weight.view(shape))


@true("frozen-batchnorm")
class FrozenByHalves(nn.Module):
    def __init__(self):
        super().__init__()
        for name, value in {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}.items():
            self.register_buffer(name, torch.full((12,), value))

    def forward(self, x):
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=1e-5)


@true("rmsnorm2d", eps=1e-6)
class RmsOfPixels(Rms):
    def forward(self, x):
        if x.ndim != 4:
            raise ValueError
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + self.eps) * self.weight[:, None, None]


@true("layernorm2d", eps=1e-5, space=1)
class LayerOfSequences(Layer):
    def forward(self, x):
        if x.ndim != 3:
            raise ValueError
        return super().forward(x.mT).mT


@true("grouped-rmsnorm", group_size=4, eps=1e-6)
class RmsByHeads(Rms):
    def forward(self, x):
        heads = x.unflatten(-1, (3, 4))
        return (heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + 1e-6)).flatten(-2) * self.weight


@true("scalenorm")
class UnitTimesRoot(nn.Module):
    """Of many who write F.normalize and mean RMS."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1) * 12**0.5)

    def forward(self, x):
        return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-5) * self.scale


@true("gated-rmsnorm", eps=1e-6, norm_before_gate=False)
class GatedByHand(Rms):
    def forward(self, x, gate):
        return self.unit(x * F.silu(gate)) * self.weight


@true("layernorm", eps=1e-5)
class ByDifferenceOfSquares(Layer):
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = x.square().mean(-1, keepdim=True) - mean.square()
        return (x - mean) * torch.rsqrt(var.clamp(min=0) + self.eps) * self.weight + self.bias


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


@true("rmsnorm", eps=1e-6)
class ByItsOwnSlopes(SlopesOfContiguousOnes):
    fault = None


@true("rmsnorm", eps=1e-6)
class ByComplexNumbers(Rms):
    def forward(self, x):
        z = torch.complex(x, torch.zeros_like(x))
        return self.weight * x / ((z * z.conj()).real.mean(-1, keepdim=True) + self.eps).sqrt()


@true("rmsnorm", eps=1e-6)
class ByItsSpectrum(Rms):
    def forward(self, x):
        power = torch.fft.fft(x, norm="ortho").abs().square().mean(-1, keepdim=True)
        return self.weight * x * torch.rsqrt(power + self.eps)


@true("rmsnorm", eps=1e-6)
class RowByRow(Rms):
    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        return torch.vmap(lambda r: self.weight * r * torch.rsqrt(r.square().mean() + self.eps))(rows).reshape(x.shape)


@true("layernorm", eps=1e-5)
class ByCumulativeSums(Layer):
    def forward(self, x):
        x = x - x.cumsum(-1)[..., -1:] / x.shape[-1]
        return self.weight * x * torch.rsqrt(x.square().cumsum(-1)[..., -1:] / x.shape[-1] + self.eps) + self.bias


@true("layernorm", eps=1e-5)
class ByProjection(Layer):
    def forward(self, x):
        n = x.shape[-1]
        c = F.linear(x, torch.eye(n, dtype=x.dtype, device=x.device) - 1 / n)
        return self.bias + self.weight * c / torch.sqrt((c * c).sum(-1, keepdim=True) / n + self.eps)


@true("groupnorm", num_groups=4, eps=1e-5)
class GroupsAsLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        y = F.layer_norm(x.reshape(len(x), 4, -1), (x[0].numel() // 4,)).reshape(x.shape)
        shape = -1, *[1] * (x.ndim - 2)
        return y * self.scale.view(shape) + self.shift.view(shape)


@true("layernorm", unbiased=True, eps_inside=False, eps=1e-6)
class OfTheAnnotatedTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.b_2


@true("layernorm", unbiased=True, eps_inside=True, eps=1e-5)
class UnbiasedVariance(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return z * torch.rsqrt(x.var(-1, keepdim=True) + self.eps) * self.weight + self.bias


@true("layernorm", unbiased=False, eps_inside=False, eps=1e-5)
class BiasedDeviationPlusEps(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return z / (x.std(-1, keepdim=True, unbiased=False) + self.eps) * self.weight + self.bias


@true("rmsnorm", eps_floor=True)
class LeastRootMeanSquare(Rms):
    def unit(self, x):
        return x / (x.norm(dim=-1, keepdim=True) * x.shape[-1] ** -0.5).clamp(min=1e-8)


@true("batchnorm", unbiased=False, momentum=0.1, eps=1e-5)
class RunningVarianceBiased(MovesByHand):
    pass


@true("batchnorm", unbiased=True, momentum=0.1, eps=1e-5)
class NewRunningEstimates(MovesByHand):
    def values(self, x):
        return x.mean(0), x.var(0)


@true("batchnorm", momentum=0.25)
class MovesByAQuarter(nn.BatchNorm1d):
    def __init__(self):
        super().__init__(12, momentum=0.25)

    def forward(self, x):
        return super().forward(x)
