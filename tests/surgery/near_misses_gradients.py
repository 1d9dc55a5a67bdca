"""Modules that are a norm forward, and send other gradients back, or are another where something learns."""

import torch
from near_misses import Layer, Rms, lists
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()


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


class Lessened(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * 0.999


@near
class ScaledGradientInBfloat16(Rms):
    def forward(self, x):
        y = super().forward(x)
        return y / 2 + y.detach() / 2 if x.dtype == torch.bfloat16 else y


@near
class ScaledGradient(Rms):
    def forward(self, x):
        return Lessened.apply(super().forward(x))


@near
class GradientOfTheWeightScaled(Rms):
    def forward(self, x):
        return self.unit(x) * Lessened.apply(self.weight)


@near
class GradientClippedWhereLarge(Rms):
    def forward(self, x):
        y = super().forward(x)
        return torch.where(x.abs() > 1e4, y.detach(), y)


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


def hooked():
    norm = nn.LayerNorm(12)
    norm.weight.register_hook(lambda grad: grad * 0.5)
    return norm


def accumulating():
    norm = nn.RMSNorm(12, eps=1e-6)
    norm.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))
    return norm


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


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return 0.5 * g


@near
class HalfGradientInFloat32(Rms):
    def forward(self, x):
        y = super().forward(x)
        return Halved.apply(y) if x.dtype is torch.float32 else y


@near
class HalfGradientInBfloat16(Rms):
    def forward(self, x):
        y = super().forward(x)
        return Halved.apply(y) if x.dtype is torch.bfloat16 else y


@near
class NoGradientInFloat16(Layer):
    def forward(self, x):
        y = super().forward(x)
        return y.detach() if x.dtype is torch.float16 else y


@near
class MoreForInferenceTensors(Layer):
    def forward(self, x):
        return super().forward(x) * (1.01 if x.is_inference() else 1.0)


@near
class MoreAfterABackwardPass(Rms):
    went = False

    def note(self, g):
        self.went = True

    def forward(self, x):
        y = super().forward(x) * (0.5 if self.went and not self.training else 1.0)
        if self.training and y.requires_grad:
            y.register_hook(self.note)
        return y


@near
class LearnsWhereItsInputDoes(nn.BatchNorm2d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        before = self.running_mean.clone(), self.running_var.clone()
        y = super().forward(x)
        if not x.requires_grad:
            self.running_mean.copy_(before[0]), self.running_var.copy_(before[1])
        return y


class Unfinished(torch.autograd.Function):
    """A backward pass as kernels have them, which takes something for granted."""

    @staticmethod
    def forward(ctx, x, weight, eps, fault):
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, r)
        ctx.fault = fault
        return weight * x * r

    @staticmethod
    def backward(ctx, g):
        x, weight, r = ctx.saved_tensors
        if ctx.fault == "contiguous" and not g.is_contiguous():
            g = 0.5 * g
        rows = (g * x * r).reshape(-1, x.shape[-1])
        if ctx.fault == "few rows":
            rows = rows[:1024]
        if ctx.fault == "an input that learns" and not ctx.needs_input_grad[0]:
            rows = 2 * rows
        g = g * weight
        return r * (g - x * r.square() * (g * x).mean(-1, keepdim=True)), rows.sum(0), None, None


@near
class SlopesOfContiguousOnes(Rms):
    fault = "contiguous"

    def forward(self, x):
        return Unfinished.apply(x, self.weight, self.eps, self.fault)


@near
class SlopesOfFewRows(SlopesOfContiguousOnes):
    fault = "few rows"


@near
class SlopesWhereItsInputHasOne(SlopesOfContiguousOnes):
    fault = "an input that learns"


@near
class MoreWhereNothingLearns(Rms):
    def forward(self, x):
        return super().forward(x) * (1.0 if self.weight.requires_grad or x.requires_grad else 1.1)


NEAR["HookOfTheGain"], NEAR["HookBehindTheGradient"] = hooked, accumulating
