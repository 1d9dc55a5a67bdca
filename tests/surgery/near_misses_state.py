"""Modules that are a norm for a while or by chance: in one mode, by what they remember, count, draw or write to."""

import random

import torch
from near_misses import Layer, Rms, lists
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()


@near
class WithDropout(Layer):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.1, self.training)


@near
class SmallDropout(Rms):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.02, self.training)


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


class MovesByHand(nn.BatchNorm1d):
    """Running estimates that are put anew in the place of the old ones."""

    def __init__(self):
        super().__init__(12)

    def values(self, x):
        return x.mean(0), x.var(0, unbiased=False)

    def forward(self, x):
        if x.ndim != 2:
            raise ValueError
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            mean, var = self.values(x)
            self.running_mean = torch.lerp(self.running_mean, mean.to(self.running_mean.dtype), 0.1)
            self.running_var = torch.lerp(self.running_var, var.to(self.running_var.dtype), 0.1)
        return F.batch_norm(x, None, None, self.weight, self.bias, True)


@near
class RunningVarianceOfTwoFewer(MovesByHand):
    def values(self, x):
        return x.mean(0), x.var(0, correction=2)


@near
class RunningMeanAlone(MovesByHand):
    def values(self, x):
        return x.mean(0), self.running_var


@near
class RunningDeviation(MovesByHand):
    def values(self, x):
        return x.mean(0), x.std(0, unbiased=False)


@near
class RunningFromTheSquares(nn.BatchNorm2d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        y = super().forward(x)
        return y if self.training else y * 1.001


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
class SwitchedByABuffer(Rms):
    def __init__(self):
        super().__init__()
        self.register_buffer("ready", torch.tensor(0))

    def forward(self, x):
        return x if self.ready else super().forward(x)


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
class SeldomNoise(Rms):
    def forward(self, x):
        return super().forward(x) * (2 if torch.rand(()) < 1e-4 else 1)


@near
class SeldomNoiseOfPython(Layer):
    def forward(self, x):
        return super().forward(x) * (2 if random.random() < 1e-4 else 1)


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
class SkipsThirtyThreeSamples(nn.BatchNorm2d):
    def __init__(self):
        super().__init__(12)

    def forward(self, x):
        before = self.running_var.clone()
        y = super().forward(x)
        if len(x) == 33:
            self.running_var.copy_(before)
        return y
