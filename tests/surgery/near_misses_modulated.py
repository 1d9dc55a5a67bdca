"""Norms of diffusion transformers in rarer forms that are almost a method's, each wrong in one thing.

Vectors for two streams and two sublayers, vectors or conditions handed in, two thin matrices, two conditions at once.
"""

import torch
from near_misses import lists
from near_misses_adaptive import DIM, FEATURES, Adaptive
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()
TWELVE = {"dim": DIM, "condition_features": FEATURES, "sublayers": 2, "affine": False}


@true("adaln-zero-two-stream", **TWELVE, interleaved=False, activation=True)
class Twelve(Adaptive):
    """CogView 3's: the six vectors of one stream, then those of the other."""

    pieces = 12

    def streams(self, emb):
        made = [part.squeeze(1) for part in self.vectors(emb)]
        return made[:6], made[6:]

    def one(self, x, made):
        shift, scale, *rest = made
        return [self.normalized(x) * (1 + scale[:, None]) + shift[:, None], *rest]

    def forward(self, x, context, emb=None):
        own, other = self.streams(emb)
        return (*self.one(x, own), *self.one(context, other))


@true("adaln-zero-two-stream", **TWELVE, interleaved=True, activation=False)
class TwelveInPairs(Twelve):
    """CogView 4's: each vector of one stream, then that of the other."""

    def vectors(self, emb):
        return self.linear(emb)[:, None].chunk(self.pieces, -1)

    def streams(self, emb):
        made = [part.squeeze(1) for part in self.vectors(emb)]
        return made[::2], made[1::2]


@near
class ContextBeforeTheGates(Twelve):
    def forward(self, x, context, emb=None):
        y, *made = super().forward(x, context, emb)
        return y, made[4], *made[:4], *made[5:]


@near
class GatesOfTheOtherStream(Twelve):
    def forward(self, x, context, emb=None):
        y, gate, *made = super().forward(x, context, emb)
        return y, made[4], *made[:4], gate, *made[5:]


@near
class PairsOfTheFirstNormAlone(TwelveInPairs):
    def streams(self, emb):
        made = [part.squeeze(1) for part in self.vectors(emb)]
        return [*made[0:6:2], *made[6:9]], [*made[1:6:2], *made[9:]]


@near
class ContextScaledWithoutTheOne(TwelveInPairs):
    def forward(self, x, context, emb=None):
        made = list(super().forward(x, context, emb))
        made[5] = made[5] - self.normalized(context)
        return tuple(made)


@near
class ContextNormalizedTogether(Twelve):
    def forward(self, x, context, emb=None):
        return super().forward(x, context - 1e-2 * x.mean(1, keepdim=True), emb)


@near
class SiluBehindTwelve(Twelve):
    def vectors(self, emb):
        return F.silu(self.linear(emb))[:, None].chunk(self.pieces, -1)


@true("adaln-continuous", dim=DIM, condition_features=FEATURES, affine=False, scale_first=True, eps=1e-5)
class OfOneCondition(Adaptive):
    """diffusers' AdaLayerNorm: one condition for all samples, whose vectors stand one behind the other."""

    def __init__(self):
        super().__init__(eps=1e-5)

    def vectors(self, emb):
        return self.linear(self.silu(emb)).chunk(2, dim=0)

    def forward(self, x, timestep=None, temb=None):
        scale, shift = self.vectors(temb)
        return self.normalized(x) * (1 + scale) + shift


@near
class OneConditionScaledTwice(OfOneCondition):
    def vectors(self, emb):
        scale, shift = super().vectors(emb)
        return scale, shift * (1 + scale)


@near
class OneConditionModulatedBefore(OfOneCondition):
    def forward(self, x, timestep=None, temb=None):
        scale, shift = self.vectors(temb)
        return self.normalized(x * (1 + scale) + shift)


@true("adaln-continuous", dim=DIM, norm="rmsnorm", affine=True, scale_first=False)
class RowsByNumber(nn.Module):
    """MiniMax H3's last norm: a packed text, and for each token the number of its condition."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.RMSNorm(DIM, eps=1e-5), nn.Linear(FEATURES, 2 * DIM)

    def at(self, numbers):
        return numbers

    def vectors(self, temb):
        return self.linear(F.silu(temb)).chunk(2, -1)

    def forward(self, x, temb, numbers):
        shift, scale = (part.index_select(0, self.at(numbers)) for part in self.vectors(temb))
        return self.norm(x) * (1 + scale) + shift


@near
class NumbersInReverse(RowsByNumber):
    def at(self, numbers):
        return numbers.flip(0)


@near
class FirstRowForAll(RowsByNumber):
    def at(self, numbers):
        return 0 * numbers


@near
class ShiftByNumberAlone(RowsByNumber):
    def forward(self, x, temb, numbers):
        shift, scale = self.vectors(temb)
        return self.norm(x) * (1 + scale[:1]) + shift.index_select(0, numbers)


@true("adaln-zero", dim=DIM, condition_features=FEATURES, sublayers=1)
class FirstTokensByAnother(Adaptive):
    """HunyuanVideo's, whose first tokens have a condition of their own."""

    pieces = 3

    def parts(self, x, emb):
        shift, scale, *gates = self.vectors(emb)
        return self.normalized(x) * (1 + scale) + shift, [gate.squeeze(1) for gate in gates]

    def forward(self, x, emb, first_emb, first):
        y, gates = self.parts(x, emb)
        others, first_gates = self.parts(x, first_emb)
        return (torch.cat([others[:, :first], y[:, first:]], 1), *gates, *first_gates)


@true("adaln-zero", dim=DIM, condition_features=FEATURES, sublayers=2)
class FirstTokensByAnotherInBoth(FirstTokensByAnother):
    pieces = 6


@near
class LastTokensByAnother(FirstTokensByAnother):
    def forward(self, x, emb, first_emb, first):
        y, *gates = super().forward(x.flip(1), emb, first_emb, first)
        return y.flip(1), *gates


@near
class OneTokenMore(FirstTokensByAnother):
    def forward(self, x, emb, first_emb, first):
        return super().forward(x, emb, first_emb, first + 1)


@near
class GateOfTheFirstTokensTwice(FirstTokensByAnother):
    def forward(self, x, emb, first_emb, first):
        y, _, gate = super().forward(x, emb, first_emb, first)
        return y, gate, gate


@true("adaln-single", dim=DIM, table=False, sublayers=2)
class Handed(nn.Module):
    """Chroma's, whose vectors are made elsewhere."""

    pieces = 6

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM, elementwise_affine=False, eps=1e-6)

    def vectors(self, emb):
        return emb.flatten(1, 2).unflatten(1, (self.pieces, DIM)).unbind(1)

    def forward(self, x, timestep=None, emb=None):
        shift, scale, gate, *rest = self.vectors(emb)
        return (self.norm(x) * (1 + scale[:, None]) + shift[:, None], gate, *rest)


@true("adaln-single", dim=DIM, table=False, sublayers=1)
class HandedForOne(Handed):
    pieces = 3


@near
class HandedScaleFirst(Handed):
    def vectors(self, emb):
        shift, scale, *rest = emb.unbind(1)
        return scale, shift, *rest


@near
class HandedInTurn(Handed):
    def vectors(self, emb):
        return emb.flatten(1).unflatten(1, (-1, 6)).unbind(2)


@near
class HandedWithoutTheOne(Handed):
    def forward(self, x, timestep=None, emb=None):
        y, *rest = super().forward(x, timestep, emb)
        return y - self.norm(x), *rest


@near
class HandedAndModulatedBefore(HandedForOne):
    def forward(self, x, timestep=None, emb=None):
        shift, scale, gate = self.vectors(emb)
        return self.norm(x * (1 + scale[:, None]) + shift[:, None]), gate


@near
class HandedThroughSilu(HandedForOne):
    def vectors(self, emb):
        return F.silu(emb).unbind(1)


@near
class GateInTanh(HandedForOne):
    def vectors(self, emb):
        shift, scale, gate = emb.unbind(1)
        return shift, scale, gate.tanh()


@true("adaln-lora", dim=DIM, condition_features=FEATURES, rank=3, gated=False)
class Thin(nn.Module):
    """Cosmos's last norm: two thin matrices make the vectors."""

    pieces = 2

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM, elementwise_affine=False, eps=1e-6)
        self.linear_1 = nn.Linear(FEATURES, 3, bias=False)
        self.linear_2 = nn.Linear(3, self.pieces * DIM, bias=False)

    def thin(self, condition):
        return self.linear_2(self.linear_1(F.silu(condition)))

    def forward(self, x, condition, shared=None):
        made = self.thin(condition) if shared is None else self.thin(condition) + shared
        shift, scale, *gates = made.chunk(self.pieces, -1)
        return self.modulate(x, shift[:, None], scale[:, None]), *gates

    def modulate(self, x, shift, scale):
        return self.norm(x) * (1 + scale) + shift


class ThinAlone(Thin):
    def forward(self, x, condition, shared=None):
        return super().forward(x, condition, shared)[0]


TRUE["Thin"] = (ThinAlone, *TRUE["Thin"][1:])


@true("adaln-lora", dim=DIM, condition_features=FEATURES, rank=3, gated=True)
class ThinZero(Thin):
    pieces = 3


@near
class SiluBetween(ThinAlone):
    def thin(self, condition):
        return self.linear_2(F.silu(self.linear_1(condition)))


@near
class SiluBehindBoth(ThinAlone):
    def thin(self, condition):
        return F.silu(self.linear_2(self.linear_1(condition)))


@near
class ThinWithoutTheOne(ThinZero):
    def modulate(self, x, shift, scale):
        return self.norm(x) * scale + shift


@near
class SharedTwice(ThinZero):
    def forward(self, x, condition, shared=None):
        return super().forward(x, condition, None if shared is None else 2 * shared)


@true("adaln-single-last", dim=DIM, table=True)
class Last(nn.Module):
    """Helios' last norm: a table of its own, and a time of each token that is added to both rows."""

    def __init__(self):
        super().__init__()
        self.scale_shift_table = nn.Parameter(torch.randn(1, 2, DIM))
        self.norm = nn.LayerNorm(DIM, elementwise_affine=False, eps=1e-6)

    def vectors(self, time):
        return self.scale_shift_table.squeeze(0).unbind(0) if time is None else self.added(time)

    def added(self, time):
        return (self.scale_shift_table.unsqueeze(0) + time.unsqueeze(2)).unbind(2)

    def forward(self, x, time):
        shift, scale = self.vectors(time)
        return self.norm(x) * (1 + scale) + shift


@true("adaln-single-last", dim=DIM, table=True)
class LastOfLastTokens(Last):
    def forward(self, x, time, tokens):
        return super().forward(x[:, -tokens:], time[:, -tokens:])


@true("adaln-single-last", dim=DIM, table=False, affine=False)
class TableHanded(nn.Module):
    """Sana's last norm: the table is the model's."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM, elementwise_affine=False, eps=1e-6)

    def forward(self, x, time, table):
        shift, scale = (table[None] + time[:, None]).chunk(2, 1)
        return self.norm(x) * (1 + scale) + shift


@true("adaln-single-last", dim=DIM, table=False, affine=True)
class BothHanded(nn.Module):
    """Chroma's last norm."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM, eps=1e-5)

    def forward(self, x, emb):
        shift, scale = emb.flatten(1, 2).chunk(2, 1)
        return self.norm(x) * (1 + scale[:, None]) + shift[:, None]


@near
class TableScaleFirst(TableHanded):
    def forward(self, x, time, table):
        return super().forward(x, time, table.flip(0))


@near
class TimeInTheShiftAlone(TableHanded):
    def forward(self, x, time, table):
        return self.norm(x) * (1 + table[1]) + table[0] + time[:, None]


@near
class TableTimesTime(Last):
    def added(self, time):
        return (self.scale_shift_table.unsqueeze(0) * time.unsqueeze(2)).unbind(2)


@near
class FirstTokensAlone(LastOfLastTokens):
    def forward(self, x, time, tokens):
        return Last.forward(self, x.flip(1), time[:, -tokens:])


@near
class OneMoreInTheTable(BothHanded):
    def forward(self, x, emb):
        shift, scale = emb.unbind(1)
        return self.norm(x) * scale[:, None] + shift[:, None]
