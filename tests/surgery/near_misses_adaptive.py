"""Norms of diffusion transformers with matrices of their own that are almost a method's, each wrong in one thing."""

import torch
from near_misses import lists
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()
DIM, FEATURES = 8, 6


class Adaptive(nn.Module):
    """What the others differ from: DiT's last norm, and with six pieces that of its blocks."""

    pieces = 2

    def __init__(self, affine=False, bias=True, eps=1e-6):
        super().__init__()
        self.silu, self.linear = nn.SiLU(), nn.Linear(FEATURES, self.pieces * DIM, bias=bias)
        self.norm = nn.LayerNorm(DIM, elementwise_affine=affine, eps=eps)

    def vectors(self, emb):
        return self.linear(self.silu(emb))[:, None].chunk(self.pieces, -1)

    def normalized(self, x):
        return self.norm(x)

    def forward(self, x, emb):
        shift, scale = self.vectors(emb)
        return self.normalized(x) * (1 + scale) + shift


true("adaptive-layernorm", dim=DIM, condition_features=FEATURES, scale_first=False, affine=False)(Adaptive)


@true("adaln-continuous", dim=DIM, condition_features=FEATURES, norm="layernorm", affine=True, bias=True, eps=1e-5)
class Continuous(Adaptive):
    def __init__(self):
        super().__init__(True, eps=1e-5)

    def forward(self, x, conditioning_embedding):
        scale, shift = self.vectors(conditioning_embedding)
        return self.normalized(x) * (1 + scale) + shift


@true("adaln-continuous", dim=DIM, norm="rmsnorm", affine=False, bias=False)
class ContinuousRms(Adaptive):
    def __init__(self):
        super().__init__(bias=False)
        self.norm = nn.RMSNorm(DIM, eps=1e-5, elementwise_affine=False)

    def forward(self, x, emb):
        scale, shift = self.vectors(emb)
        return self.normalized(x) * (1 + scale) + shift


class Zero(Adaptive):
    """DiT's, called as diffusers calls it."""

    pieces = 6

    def order(self, y, gate, shift2, scale2, gate2):
        return y, gate, shift2, scale2, gate2

    def forward(self, x, timestep=None, emb=None):
        shift, scale, *rest = self.vectors(emb)
        return self.order(self.normalized(x) * (1 + scale) + shift, *(part.squeeze(1) for part in rest))


true("adaln-zero", dim=DIM, condition_features=FEATURES, sublayers=2, eps=1e-6)(Zero)


@true("adaln-zero", dim=DIM, condition_features=FEATURES, sublayers=1)
class ZeroSingle(Zero):
    pieces = 3

    def order(self, y, gate):
        return y, gate


@true("adaln-zero-two-stream", dim=DIM, condition_features=FEATURES, affine=True)
class TwoStreams(Adaptive):
    pieces = 6

    def __init__(self):
        super().__init__(True)

    def forward(self, hidden_states, encoder_hidden_states, temb):
        shift, scale, gate, shift2, scale2, gate2 = self.vectors(temb)
        y = self.normalized(hidden_states) * (1 + scale) + shift
        return y, self.normalized(encoder_hidden_states) * (1 + scale2) + shift2, gate, gate2


@true("adaln-zero-dual", dim=6)
class Dual(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 54)

    def forward(self, x, emb=None):
        a, b, gate, c, d, gate2, e, f, gate3 = self.linear(F.silu(emb)).chunk(9, 1)
        h = F.layer_norm(x, (6,), eps=1e-6)
        y, y3 = h * (1 + b[:, None]) + a[:, None], h * (1 + f[:, None]) + e[:, None]
        return y, gate, c, d, gate2, y3, gate3


@true("adaptive-rmsnorm-zero", dim=6)
class Lumina(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 24), nn.RMSNorm(6, eps=1e-5)

    def forward(self, x, emb):
        scale, gate, scale2, gate2 = self.linear(F.silu(emb)).chunk(4, 1)
        return self.norm(x) * (1 + scale[:, None]), gate, scale2, gate2


@true("adaln-single", dim=DIM)
class Single(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale_shift_table = nn.Parameter(torch.randn(6, DIM))

    def forward(self, x, timestep):
        made = (self.scale_shift_table[None] + timestep.reshape(len(x), 6, -1)).chunk(6, 1)
        y = F.layer_norm(x, (DIM,), eps=1e-6) * (1 + made[1]) + made[0]
        return y, *(part.squeeze(1) for part in made[2:])


@true("film", num_features=DIM, condition_features=FEATURES)
class Film(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_both = nn.Linear(FEATURES, 2 * DIM)

    def forward(self, x, condition):
        scale, shift = self.to_both(condition)[:, :, None, None].chunk(2, 1)
        return x * (1 + scale) + shift


@true("adaptive-groupnorm", num_features=DIM, condition_features=FEATURES, num_groups=4, affine=False, activation=False)
class Groups(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_groups, self.linear = 4, nn.Linear(FEATURES, 2 * DIM)

    def forward(self, x, emb):
        scale, shift = self.linear(emb)[:, :, None, None].chunk(2, 1)
        return F.group_norm(x, self.num_groups, eps=1e-5) * (1 + scale) + shift


@true("adaln-continuous", dim=DIM, condition_features=FEATURES, affine=False, activation=False)
class ContinuousWithoutSilu(Adaptive):
    def vectors(self, emb):
        return self.linear(emb)[:, None].chunk(self.pieces, -1)

    def forward(self, x, emb):
        scale, shift = self.vectors(emb)
        return self.normalized(x) * (1 + scale) + shift


@true("adaln-continuous", dim=DIM, norm="rmsnorm", affine=False, bias=False, vectors="scale")
class ScaleAlone(Adaptive):
    pieces = 1

    def __init__(self):
        super().__init__(bias=False)
        self.norm = nn.RMSNorm(DIM, eps=1e-6, elementwise_affine=False)

    def forward(self, x, emb):
        (scale,) = self.vectors(emb)
        return self.normalized(x) * (1 + scale)


@true("adaln-continuous", dim=DIM, norm="layernorm", affine=True, vectors="shift")
class ShiftAlone(Adaptive):
    pieces = 1

    def __init__(self):
        super().__init__(affine=True)

    def forward(self, x, emb):
        (shift,) = self.vectors(emb)
        return self.normalized(x) + shift


@true("adaln-continuous", dim=DIM, condition_features=FEATURES, affine=False)
class OfEachToken(Adaptive):
    def vectors(self, emb):
        return self.linear(self.silu(emb)).chunk(self.pieces, -1)

    def forward(self, x, emb):
        scale, shift = self.vectors(emb)
        return self.normalized(x) * (1 + scale) + shift


@true("adaptive-rmsnorm-zero", dim=DIM, condition_features=FEATURES, affine=False)
class ZeroOfAnyCondition(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(FEATURES, 4 * DIM)

    def forward(self, x, emb):
        scale, gate, scale2, gate2 = self.linear(F.silu(emb)).chunk(4, 1)
        return F.rms_norm(x, (DIM,), eps=1e-5) * (1 + scale[:, None]), gate, scale2, gate2


@near
class ScaleWithoutTheOne(ScaleAlone):
    def forward(self, x, emb):
        (scale,) = self.vectors(emb)
        return self.normalized(x) * scale


@near
class ShiftBehindTheNorm(ShiftAlone):
    def forward(self, x, emb):
        (shift,) = self.vectors(emb)
        return self.normalized(x + shift)


@near
class ShiftOfOtherSign(ShiftAlone):
    def forward(self, x, emb):
        return 2 * self.normalized(x) - super().forward(x, emb)


@near
class TokensInReverse(OfEachToken):
    def vectors(self, emb):
        return super().vectors(emb.flip(1))


@near
class MeanOverTokens(OfEachToken):
    def vectors(self, emb):
        return super().vectors(emb.mean(1, keepdim=True).expand_as(emb))


@near
class SiluOfTheScale(ContinuousWithoutSilu):
    def vectors(self, emb):
        scale, shift = super().vectors(emb)
        return F.silu(scale), shift


@near
class SiluBehindTheLinear(ContinuousWithoutSilu):
    def vectors(self, emb):
        return F.silu(self.linear(emb))[:, None].chunk(self.pieces, -1)


@near
class GatesInTanh(ZeroOfAnyCondition):
    def forward(self, x, emb):
        y, gate, scale2, gate2 = super().forward(x, emb)
        return y, gate.tanh(), scale2, gate2.tanh()


@near
class CentredInPlace(Adaptive):
    def normalized(self, x):
        return super().normalized(x.sub_(x.mean(-1, keepdim=True)))


@near
class NotOneMore(Adaptive):
    def forward(self, x, emb):
        shift, scale = self.vectors(emb)
        return self.normalized(x) * scale + shift


@near
class ExponentialGain(Adaptive):
    def forward(self, x, emb):
        shift, scale = self.vectors(emb)
        return self.normalized(x) * scale.exp() + shift


@true("adaln-continuous", dim=DIM, affine=False, activation=False, scale_first=False, eps=1e-6)
class WithoutSilu(Adaptive):
    def vectors(self, emb):
        return self.linear(emb)[:, None].chunk(self.pieces, -1)


@near
class WithGelu(Adaptive):
    def vectors(self, emb):
        return self.linear(F.gelu(emb))[:, None].chunk(self.pieces, -1)


@near
class InTurn(Adaptive):
    def vectors(self, emb):
        return self.linear(self.silu(emb))[:, None].unflatten(-1, (-1, 2)).unbind(-1)


@near
class GainOfAnotherSample(Adaptive):
    def vectors(self, emb):
        shift, scale = super().vectors(emb)
        return shift, scale.roll(1, 0)


@near
class GainOfAnotherFeature(Adaptive):
    def vectors(self, emb):
        shift, scale = super().vectors(emb)
        return shift, scale.roll(1, -1)


@near
class GainOfTheFirstTokens(Adaptive):
    def forward(self, x, emb):
        y = super().forward(x, emb)
        return torch.cat([y[:, :9], self.normalized(x[:, 9:])], 1)


@near
class ShiftedBeforeItIsScaled(Adaptive):
    def forward(self, x, emb):
        shift, scale = self.vectors(emb)
        return (self.normalized(x) + shift) * (1 + scale)


@near
class ModulatedBeforeTheNorm(Adaptive):
    def forward(self, x, emb):
        shift, scale = self.vectors(emb)
        return self.normalized(x * (1 + scale) + shift)


@near
class WithTheStream(Adaptive):
    def forward(self, x, emb):
        return x + super().forward(x, emb)


@near
class UnbiasedVariance(Adaptive):
    def normalized(self, x):
        return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-6)


@near
class EpsBesideTheRoot(Adaptive):
    def normalized(self, x):
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, correction=0, keepdim=True) + 1e-3)


@near
class StatisticInLowPrecision(Adaptive):
    def normalized(self, x):
        mean = x.bfloat16().mean(-1, keepdim=True).to(x.dtype)
        return (x - mean) * torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + 1e-6)


@near
class StatisticOfTheText(Adaptive):
    def normalized(self, x):
        return F.layer_norm(x, x.shape[1:], eps=1e-6)


@near
class NormOfTheTokenBefore(Adaptive):
    def normalized(self, x):
        return super().normalized(x).roll(1, 1)


@near
class ANormThatReturnsBoth(Adaptive):
    def forward(self, x, emb):
        return super().forward(x, emb), x


@near
class ANormInAList(Adaptive):
    def forward(self, x, emb):
        return [super().forward(x, emb)]


@near
class EvaluatedWithoutGain(Adaptive):
    def vectors(self, emb):
        shift, scale = super().vectors(emb)
        return shift, scale if self.training else 0 * scale


@near
class ClampedGain(Adaptive):
    def vectors(self, emb):
        shift, scale = super().vectors(emb)
        return shift, scale.clamp(-0.5, 0.5)


@near
class ConditionOfUnitSize(Adaptive):
    def vectors(self, emb):
        return super().vectors(emb * torch.rsqrt(emb.square().mean(-1, keepdim=True) + 1e-6))


@near
class ConditionOfTheBatch(Adaptive):
    def vectors(self, emb):
        return super().vectors(emb.mean(0, keepdim=True).expand_as(emb))


@near
class GateAndScaleChanged(Zero):
    def order(self, y, gate, shift2, scale2, gate2):
        return y, scale2, shift2, gate, gate2


@near
class ScaleFirstInBoth(Zero):
    def vectors(self, emb):
        shift, scale, gate, shift2, scale2, gate2 = super().vectors(emb)
        return scale, shift, gate, scale2, shift2, gate2


@near
class TanhOfTheGate(Zero):
    def order(self, y, gate, shift2, scale2, gate2):
        return y, gate.tanh(), shift2, scale2, gate2


@near
class OneMoreAlready(Zero):
    def order(self, y, gate, shift2, scale2, gate2):
        return y, gate, shift2, 1 + scale2, gate2


@near
class WithoutTheLastGate(Zero):
    def order(self, y, gate, shift2, scale2, gate2):
        return y, gate, shift2, scale2


@near
class ContextUnnormalized(TwoStreams):
    def forward(self, hidden_states, encoder_hidden_states, temb):
        y, _, gate, gate2 = super().forward(hidden_states, encoder_hidden_states, temb)
        return y, encoder_hidden_states, gate, gate2


@near
class ContextOfTheSameVectors(TwoStreams):
    def forward(self, hidden_states, encoder_hidden_states, temb):
        shift, scale, gate, _, _, gate2 = self.vectors(temb)
        y, other = (self.normalized(z) * (1 + scale) + shift for z in (hidden_states, encoder_hidden_states))
        return y, other, gate, gate2


@near
class SharesOneTable(Single):
    def forward(self, x, timestep):
        y, gate, shift2, scale2, gate2 = super().forward(x, timestep)
        return y, gate, shift2, scale2, 0 * gate2 + gate


@near
class TableTimesTheTime(Single):
    def forward(self, x, timestep):
        return super().forward(x, timestep * self.scale_shift_table.flatten())


@near
class FilmWithoutTheOne(Film):
    def forward(self, x, condition):
        return super().forward(x, condition) - x


@near
class FilmOfAMean(Film):
    def forward(self, x, condition):
        return super().forward(x - 1e-2 * x.mean(), condition)


@near
class GroupsOfNeighboursInTurn(Groups):
    def forward(self, x, emb):
        return super().forward(x.unflatten(1, (4, 2)).transpose(1, 2).flatten(1, 2), emb)
