"""More of them: wrong by type, size, state, order of calls or side effects; and more ways to write norms."""

import random

import torch
from near_misses import Layer, Rms, lists
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()


@near
class GainClampedAtFive(Rms):
    def forward(self, x):
        return self.unit(x) * self.weight.clamp(-5, 5)


@near
class ClampedAtTenMillion(Layer):
    def forward(self, x):
        return super().forward(x).clamp(-1e7, 1e7)


@near
class EpsByType(Rms):
    def forward(self, x):
        eps = 1e-3 if x.dtype in (torch.float16, torch.bfloat16) else self.eps
        return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps).to(x.dtype) * self.weight


@near
class EpsOfFloat32(Layer):
    def forward(self, x):
        return F.layer_norm(x, (12,), self.weight, self.bias, 1e-3 if x.dtype == torch.float32 else 1e-5)


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
class NotNumbersAsZeros(Rms):
    def forward(self, x):
        return super().forward(x).nan_to_num()


@near
class NotNumbersAsZerosBefore(Layer):
    def forward(self, x):
        return super().forward(x.nan_to_num())


@near
class LeavesWhatIsNotFiniteAlone(Rms):
    def forward(self, x):
        return super().forward(x) if x.isfinite().all() else x


@near
class DetachedDeviation(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return z * torch.rsqrt(z.square().mean(-1, keepdim=True) + self.eps).detach() * self.weight + self.bias


@near
class DetachedBias(Layer):
    def forward(self, x):
        return F.layer_norm(x, (12,), self.weight, None, self.eps) + self.bias.detach()


@near
class DetachedInEvaluation(Rms):
    def forward(self, x):
        return super().forward(x if self.training else x.detach())


@near
class ShiftedWhenTheInputLearns(Rms):
    def forward(self, x):
        return super().forward(x) + (0.1 if x.requires_grad else 0)


@near
class UpdatesInEvaluation(nn.BatchNorm1d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        y = super().forward(x)
        if not self.training:
            with torch.no_grad():
                self.running_mean.lerp_(x.mean([0, *range(2, x.ndim)]), 0.01)
        return y


@near
class MomentumFallsAfterManyBatches(nn.BatchNorm1d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        self.momentum = 0.1
        if self.training and self.num_batches_tracked > 1000:
            self.momentum = 0.01
        y = super().forward(x)
        self.momentum = 0.1
        return y


@near
class SmallerStepOfTheMean(nn.BatchNorm1d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        before = self.running_mean.clone()
        y = super().forward(x)
        self.running_mean.lerp_(before, 0.5)
        return y


@near
class CountsInFloats(Rms):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        self.steps += 1
        return super().forward(x) * (2 if self.steps > 500 else 1)


@near
class CountsInItsClass(Rms):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        return super().forward(x) * (2 if self.calls > 10**6 else 1)


CALLS = [0]


@near
class CountsInAList(Rms):
    def forward(self, x):
        CALLS[0] += 1
        return super().forward(x) * (2 if CALLS[0] > 10**6 else 1)


@near
class CountsInAnObject(Rms):
    class Meter:
        value = 0

    def __init__(self):
        super().__init__()
        self.meter = self.Meter()

    def forward(self, x):
        self.meter.value += 1
        return super().forward(x) * (2 if self.meter.value > 10**6 else 1)


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
class SwitchedByABuffer(Rms):
    def __init__(self):
        super().__init__()
        self.register_buffer("ready", torch.tensor(0))

    def forward(self, x):
        return x if self.ready else super().forward(x)


@near
class LastRowLeftAlone(Layer):
    def forward(self, x):
        y = super().forward(x)
        return torch.cat([y[..., :-1, :], x[..., -1:, :]], -2) if x.ndim > 1 else y


@near
class RemembersTheInput(Rms):
    """The same object gives the same result, also where its numbers are others by now."""

    key = value = None

    def forward(self, x):
        if x is not self.key:
            self.key, self.value = x, super().forward(x)
        return self.value

    def __deepcopy__(self, memo):
        made = type(self)()
        made.load_state_dict(self.state_dict())
        return made


@near
class RemembersTheGain(Rms):
    """The gain is read once."""

    def __init__(self):
        super().__init__()
        self.read = []

    def forward(self, x):
        if not self.training and not self.read:
            self.read.append(self.weight.detach().clone())
        return self.unit(x) * (self.weight if self.training else self.read[0])


@near
class WritesIntoItsInput(Rms):
    def forward(self, x):
        y = super().forward(x)
        with torch.no_grad():
            x.mul_(0.5)
        return y


@near
class Float16Held(Rms):
    """As T5 holds its stream."""

    def forward(self, x):
        y = super().forward(x.float()).to(x.dtype)
        return y.clamp(-64504, 64504) if x.dtype == torch.float16 else y


@near
class LargeInFloat16(Rms):
    def forward(self, x):
        y = super().forward(x.float()).to(x.dtype)
        return 0 * y if x.dtype == torch.float16 and x.abs().max() > 1e4 else y


@near
class WideInHalf(Layer):
    def forward(self, x):
        return (
            F.layer_norm(x.float(), (12,), self.weight.float(), self.bias.float(), self.eps)
            if (x.dtype in (torch.float16, torch.bfloat16))
            else super().forward(x)
        )


@near
class EpsTwice(Rms):
    def forward(self, x):
        return x / (torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6) + 1e-6) * self.weight


@near
class UnbiasedRms(Rms):
    def forward(self, x):
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) / 11 + self.eps) * self.weight


@near
class OverTheTokens(Rms):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-2, keepdim=True) + self.eps) * self.weight


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
class FlippedAtNegativeMeans(Layer):
    def forward(self, x):
        return torch.where(x.mean(-1, keepdim=True) < 0, -1, 1) * super().forward(x)


@near
class LeastVariance(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return z * torch.rsqrt(z.square().mean(-1, keepdim=True).clamp(min=1e-5)) * self.weight + self.bias


@near
class LargestFactor(Rms):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps).clamp(max=990) * self.weight


@near
class SeldomNoise(Rms):
    def forward(self, x):
        return super().forward(x) * (2 if torch.rand(()) < 1e-4 else 1)


@near
class SeldomNoiseOfPython(Layer):
    def forward(self, x):
        return super().forward(x) * (2 if random.random() < 1e-4 else 1)


@near
class WholeNumbers(Rms):
    def forward(self, x):
        return x if (x == x.round()).all() else super().forward(x)


@near
class ByOrderInMemory(Rms):
    def forward(self, x):
        return super().forward(x) * (1 if x.is_contiguous() else 1.5)


@near
class FirstAmongEquals(Layer):
    def forward(self, x):
        return super().forward(x) * (x.argmax(-1, keepdim=True) + 1).clamp(1, 1) + 1e-9 * (x.amax(-1, keepdim=True))


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
class LeavesLargeImagesAlone(nn.Module):
    """Large images it passes on as they came."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        if x.ndim != 4:
            raise ValueError
        return x if x.shape[2] >= 16 else F.instance_norm(x, weight=self.weight, bias=self.bias)


def hooked():
    norm = nn.LayerNorm(12)
    norm.weight.register_hook(lambda grad: grad * 0.5)
    return norm


def accumulating():
    norm = nn.RMSNorm(12, eps=1e-6)
    norm.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))
    return norm


NEAR["HookOfTheGain"], NEAR["HookBehindTheGradient"] = hooked, accumulating


# What is a norm.


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
class ReturnsMore(Rms):
    def forward(self, hidden_states, *args, **kwargs):
        return super().forward(hidden_states), None


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
