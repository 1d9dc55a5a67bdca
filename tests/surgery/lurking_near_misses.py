"""Near-misses that wait for a type, a mode, an order of memory or a way of being called, and norms in odd words."""

import random

import torch
from near_misses import Layer, Rms, lists
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()


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
class MoreInFloat32InTraining(Rms):
    def forward(self, x):
        return super().forward(x) * (1.01 if self.training and x.dtype is torch.float32 else 1.0)


@near
class MoreInBfloat16InTraining(Layer):
    def forward(self, x):
        return super().forward(x) * (1.25 if self.training and x.dtype is torch.bfloat16 else 1.0)


@near
class NoGainWhereTypesDiffer(Rms):
    def forward(self, x):
        return super().forward(x) if x.dtype is self.weight.dtype else self.unit(x)


@near
class NothingBeyond1e13(Rms):
    def forward(self, x):
        return super().forward(torch.where(x.abs() > 1e13, 0 * x, x))


@near
class InfinityIsLarge(Layer):
    def forward(self, x):
        return super().forward(torch.where(x.isinf(), x.sign() * 1e4, x))


@near
class AMillionthMore(Layer):
    def forward(self, x):
        return super().forward(x) * (1 + 1e-6)


@near
class MoreForInferenceTensors(Layer):
    def forward(self, x):
        return super().forward(x) * (1.01 if x.is_inference() else 1.0)


@near
class MoreBetweenLayers(Rms):
    def forward(self, x):
        return super().forward(x) * (1.0 if x.is_leaf else 1.01)


@near
class MoreWhereCompiled(Rms):
    def forward(self, x):
        return super().forward(x) * (1.25 if torch.compiler.is_compiling() else 1.0)


def counted(calls=[0]):  # noqa: B006
    calls[0] += 1
    return calls[0]


@near
class CountsInADefault(Rms):
    def forward(self, x):
        return super().forward(x) * (1.0 if counted() < 100_000 else 0.5)


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
class LearnsWhereItsInputDoes(nn.BatchNorm2d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        before = self.running_mean.clone(), self.running_var.clone()
        y = super().forward(x)
        if not x.requires_grad:
            self.running_mean.copy_(before[0]), self.running_var.copy_(before[1])
        return y


@near
class CleanWhenCopied(Rms):
    def forward(self, x):
        return super().forward(x) * 1.5

    def __deepcopy__(self, memo):
        made = Rms()
        made.load_state_dict(self.state_dict())
        return made


@near
class CleanWhenConverted(Rms):
    def __init__(self):
        super().__init__()
        self.factor = 1.5

    def _apply(self, fn, recurse=True):
        self.factor = 1.0
        return super()._apply(fn, recurse)

    def forward(self, x):
        return super().forward(x) * self.factor


@near
class SeedsWhatIsRandom(Rms):
    def forward(self, x):
        random.seed(3)
        return super().forward(x)


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


@true("rmsnorm", eps=1e-6)
class ByItsOwnSlopes(SlopesOfContiguousOnes):
    fault = None


@near
class MoreOfManyInBfloat16(Rms):
    def forward(self, x):
        return super().forward(x) * (1.25 if x.dtype is torch.bfloat16 and len(x) >= 100 else 1.0)


@near
class MoreOfTurnedInFloat32(Rms):
    def forward(self, x):
        return super().forward(x) * (1.1 if x.dtype is torch.float32 and not x.is_contiguous() else 1.0)


@near
class MoreOfSlices(Rms):
    def forward(self, x):
        sliced = x.ndim == 2 and x.stride(1) == 1 and x.stride(0) > x.shape[1]
        return super().forward(x) * (1.25 if sliced else 1.0)


@near
class MoreUnderAutocastToFloat16(Rms):
    def forward(self, x):
        half = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.float16
        return super().forward(x) * (1.25 if half else 1.0)


@near
class MoreWhereNothingLearns(Rms):
    def forward(self, x):
        return super().forward(x) * (1.0 if self.weight.requires_grad or x.requires_grad else 1.1)


@near
class MoreWhereTraced(Rms):
    def forward(self, x):
        return super().forward(x) * (1.1 if torch.jit.is_tracing() else 1.0)


@near
class MakesItsGain(Rms):
    def __init__(self):
        super().__init__()
        self.weight = None

    def forward(self, x):
        if self.weight is None:
            self.weight = nn.Parameter(torch.ones(x.shape[-1], dtype=x.dtype))
        return super().forward(x)


@near
class ComplexGain(Rms):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(12, dtype=torch.complex64))


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
