"""Attention that is almost gated, or has almost a sink, each module wrong in one thing only."""

import torch
from near_misses import lists
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()
DIM, HEADS, PAIRS, SIZE = 12, 4, 2, 6


def heads(z):
    return z.unflatten(-1, (-1, SIZE)).transpose(1, 2)


def turned(z, cos, sin):
    a, b = z.chunk(2, -1)
    return z * cos + torch.cat([-b, a], -1) * sin


class Attend(nn.Module):
    """What the others differ from: Llama's attention."""

    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(DIM, HEADS * SIZE, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(DIM, PAIRS * SIZE, bias=False) for _ in range(2))
        self.o_proj = nn.Linear(HEADS * SIZE, DIM, bias=False)
        self.num_heads, self.head_dim = HEADS, SIZE

    def scores(self, q, k):
        return q @ k.mT * SIZE**-0.5

    def shares(self, s):
        return s.softmax(-1)

    def values(self, x):
        return heads(self.v_proj(x))

    def mixed(self, p, v):
        return p @ v

    def gated(self, y, x):
        return y

    def written(self, y, x):
        return self.o_proj(y)

    def forward(self, hidden_states, position_embeddings, attention_mask=None):
        x = hidden_states
        cos, sin = (t.unsqueeze(1) for t in position_embeddings)
        q, k = (turned(heads(part(x)), cos, sin) for part in (self.q_proj, self.k_proj))
        k, v = (z.repeat_interleave(HEADS // PAIRS, 1) for z in (k, self.values(x)))
        s = self.scores(q, k)
        s = s if attention_mask is None else s + attention_mask
        y = self.mixed(self.shares(s), v).transpose(1, 2).flatten(2)
        return self.written(self.gated(y, x), x), None


@near
class NoGateAndNoSink(Attend):
    pass


class Gated(Attend):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(DIM, HEADS * SIZE, bias=False)

    def gate(self, x):
        return self.gate_proj(x).sigmoid()

    def gated(self, y, x):
        return y * self.gate(x)


true("gated-attention", heads=HEADS, head_dim=SIZE, causal=False)(Gated)


@true("gated-attention", heads=HEADS, head_dim=SIZE)
class GateInTheQueries(Attend):
    """Qwen3-Next's: each head of the query's matrix makes query and gate, and norms stand on queries and keys."""

    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(DIM, 2 * HEADS * SIZE)
        self.q_norm, self.k_norm = nn.RMSNorm(SIZE), nn.RMSNorm(SIZE)

    def forward(self, hidden_states, position_embeddings, attention_mask):
        cos, sin = (t.unsqueeze(1) for t in position_embeddings)
        q, gate = self.q_proj(hidden_states).unflatten(-1, (HEADS, 2 * SIZE)).chunk(2, -1)
        q = turned(self.q_norm(q).transpose(1, 2), cos, sin)
        k = turned(self.k_norm(heads(self.k_proj(hidden_states)).transpose(1, 2)).transpose(1, 2), cos, sin)
        k, v = (z.repeat_interleave(HEADS // PAIRS, 1) for z in (k, heads(self.v_proj(hidden_states))))
        y = F.scaled_dot_product_attention(q, k, v, attention_mask)
        return self.o_proj(y.transpose(1, 2).flatten(2) * gate.flatten(2).sigmoid()), None


@true("gated-attention", heads=HEADS, head_dim=SIZE)
class OneGateAHead(Gated):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(DIM, HEADS)

    def gated(self, y, x):
        return (y.unflatten(-1, (HEADS, SIZE)) * self.gate(x).unsqueeze(-1)).flatten(2)


@true("gated-attention", heads=HEADS, head_dim=SIZE, causal=True)
class GatedByItself(Gated):
    """Without angles and without a mask of somebody else's."""

    def forward(self, x):
        seen = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype, device=x.device).tril().log()
        still = torch.ones(1, x.shape[1], SIZE, dtype=x.dtype, device=x.device)
        return super().forward(x, (still, 0 * still), seen)[0]


@near
class GateOfTanh(Gated):
    def gate(self, x):
        return self.gate_proj(x).tanh()


@near
class GateOfSilu(Gated):
    def gate(self, x):
        return F.silu(self.gate_proj(x))


@near
class TwiceTheGate(Gated):
    def gate(self, x):
        return 2 * super().gate(x)


@near
class HardGate(Gated):
    def gate(self, x):
        return F.hardsigmoid(self.gate_proj(x))


@near
class TheOtherSideOfTheGate(Gated):
    def gate(self, x):
        return 1 - super().gate(x)


@near
class SharpGate(Gated):
    def gate(self, x):
        return (1.5 * self.gate_proj(x)).sigmoid()


@near
class GateInLowPrecision(Gated):
    def gate(self, x):
        return super().gate(x).bfloat16().to(x.dtype)


@near
class GateOfTheTokenBefore(Gated):
    def gate(self, x):
        return super().gate(x).roll(1, 1)


@near
class GateThatReadsTheTokenBefore(Gated):
    def gate(self, x):
        return super().gate(x.roll(1, 1))


@near
class GateOfTheResult(Gated):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(HEADS * SIZE, HEADS * SIZE, bias=False)

    def gated(self, y, x):
        return y * self.gate(y)


@near
class GatesOfOtherHeads(Gated):
    def gate(self, x):
        return super().gate(x).unflatten(-1, (HEADS, SIZE)).flip(-2).flatten(-2)


@near
class GateBehindTheOutput(Gated):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(DIM, DIM, bias=False)

    def gated(self, y, x):
        return y

    def written(self, y, x):
        return self.o_proj(y) * self.gate(x)


@near
class GateOnTheValues(Gated):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(DIM, PAIRS * SIZE, bias=False)

    def gated(self, y, x):
        return y

    def values(self, x):
        return super().values(x) * heads(self.gate(x))


@near
class GateThatAdds(Gated):
    def gated(self, y, x):
        return y + self.gate(x)


@near
class GateInTrainingAlone(Gated):
    def gate(self, x):
        return super().gate(x) if self.training else 1.0


@near
class GateOfShortTexts(Gated):
    def gate(self, x):
        return super().gate(x) if x.shape[1] < 30 else torch.ones_like(self.gate_proj(x))


@near
class GatedTwice(Gated):
    def gated(self, y, x):
        return super().gated(super().gated(y, x), x)


@near
class GatedWithoutRoot(Gated):
    def scores(self, q, k):
        return q @ k.mT / SIZE


@near
class GatedAndCapped(Gated):
    def scores(self, q, k):
        return 20 * torch.tanh(super().scores(q, k) / 20)


@near
class GatedSigmoids(Gated):
    def shares(self, s):
        return s.sigmoid()


class Sinks(Attend):
    def __init__(self):
        super().__init__()
        self.sinks = nn.Parameter(torch.randn(HEADS))

    def sink(self, s):
        return self.sinks.view(-1, 1, 1).expand(*s.shape[:-1], 1)

    def shares(self, s):
        return torch.cat([s, self.sink(s)], -1).softmax(-1)[..., :-1]


true("attention-sinks", heads=HEADS, head_dim=SIZE, causal=False)(Sinks)


@true("attention-sinks", heads=HEADS, head_dim=SIZE)
class SinksFromTheSum(Sinks):
    """The same, from the logarithm of the sum."""

    def shares(self, s):
        return s.softmax(-1) * (s.logsumexp(-1, keepdim=True) - self.sinks.view(-1, 1, 1)).sigmoid()


@near
class SinksThatMixTheOtherWay(Sinks):
    def sink(self, s):
        return super().sink(s).flip(1)


@near
class SinksOnTheValues(Sinks):
    def shares(self, s):
        return s.softmax(-1)

    def mixed(self, p, v):
        return p @ v + self.sinks.view(-1, 1, 1)


@near
class SoftmaxTwice(Sinks):
    def shares(self, s):
        return torch.cat([s, self.sink(s)], -1).softmax(-1).softmax(-1)[..., :-1]


@near
class SharesWithoutTheSink(Sinks):
    def shares(self, s):
        p = super().shares(s)
        return p / p.sum(-1, keepdim=True)


@near
class SinksInTheScores(Sinks):
    def scores(self, q, k):
        return super().scores(q, k) + self.sinks.view(-1, 1, 1)

    def shares(self, s):
        return s.softmax(-1)


@near
class ScaledSinks(Sinks):
    def sink(self, s):
        return super().sink(s) * SIZE**-0.5


@near
class SinksWithoutExponent(Sinks):
    def shares(self, s):
        e = s.exp()
        return e / (e.sum(-1, keepdim=True) + self.sinks.abs().view(-1, 1, 1))


@near
class TwoSinksAHead(Sinks):
    def shares(self, s):
        return torch.cat([s, self.sink(s), self.sink(s)], -1).softmax(-1)[..., :-2]


@near
class ASinkAndANothing(Sinks):
    def shares(self, s):
        return torch.cat([s, self.sink(s), torch.zeros_like(s[..., :1])], -1).softmax(-1)[..., :-2]


@near
class GateOfTheSink(Sinks):
    def shares(self, s):
        return s.softmax(-1) * (1 - self.sinks.view(-1, 1, 1).sigmoid())


@near
class SinkWithAValue(Sinks):
    def mixed(self, p, v):
        return super().mixed(p, v) + (1 - p.sum(-1, keepdim=True)) * 0.1


@near
class SinkOfTheFirstToken(Sinks):
    def shares(self, s):
        return torch.cat([super().shares(s)[..., :1, :], s[..., 1:, :].softmax(-1)], -2)


@near
class SinksOfShortTexts(Sinks):
    def shares(self, s):
        return super().shares(s) if s.shape[-1] < 30 else s.softmax(-1)


@near
class SinksInTrainingAlone(Sinks):
    def shares(self, s):
        return super().shares(s) if self.training else s.softmax(-1)


@near
class SinksWithoutRoot(Sinks):
    def scores(self, q, k):
        return q @ k.mT / SIZE


@near
class SinksInLowPrecision(Sinks):
    def shares(self, s):
        return super().shares(s).bfloat16().to(s.dtype)


@near
class KeysUnturned(Sinks):
    def forward(self, hidden_states, position_embeddings, attention_mask=None):
        cos, sin = position_embeddings
        cos, sin = cos.clone(), sin.clone()
        cos[:, -1], sin[:, -1] = 1, 0
        return super().forward(hidden_states, (cos, sin), attention_mask)


class GatedAtAnotherScale(Gated):
    """What the others differ from: Muse's, whose queries are multiplied by a number that it holds."""

    def __init__(self):
        super().__init__()
        self.query_scale = 0.7

    def factor(self, s):
        return self.query_scale

    def scores(self, q, k):
        s = super().scores(q, k)
        return s * self.factor(s)


true("gated-attention", heads=HEADS, head_dim=SIZE, scale=0.7 * SIZE**-0.5)(GatedAtAnotherScale)


@near
class AnotherScaleInTraining(GatedAtAnotherScale):
    def factor(self, s):
        return super().factor(s) if self.training else 1.0


@near
class AnotherScaleForLongTexts(GatedAtAnotherScale):
    def factor(self, s):
        return super().factor(s) * (1.0 if s.shape[-1] < 30 else 1.01)


@near
class AnotherScaleForTheFirstHead(GatedAtAnotherScale):
    def factor(self, s):
        return super().factor(s) * torch.tensor([1.1, 1, 1, 1], dtype=s.dtype, device=s.device).view(-1, 1, 1)


@true("gated-attention", heads=HEADS, head_dim=SIZE, causal=False)
class GatedAcross(Gated):
    """AlphaFold's: queries and gates of one text, keys and values of another, and queries divided in place."""

    def keys(self, q_x, kv_x):
        return self.k_proj(kv_x), self.v_proj(kv_x)

    def gate_of(self, q_x, kv_x):
        return self.gate(q_x)

    def forward(self, q_x, kv_x, biases=None):
        q = heads(self.q_proj(q_x))
        q /= SIZE**0.5
        k, v = (heads(z).repeat_interleave(HEADS // PAIRS, 1) for z in self.keys(q_x, kv_x))
        y = self.mixed(self.shares(q @ k.mT), v).transpose(1, 2).flatten(2)
        return self.o_proj(y * self.gate_of(q_x, kv_x))


@near
class ValuesOfTheQueriesText(GatedAcross):
    def keys(self, q_x, kv_x):
        return self.k_proj(kv_x), self.v_proj(kv_x + 1e-2 * q_x)


@near
class GateOfTheOtherText(GatedAcross):
    def gate_of(self, q_x, kv_x):
        return self.gate(kv_x.roll(1, 1))


@true("gated-attention", heads=HEADS, head_dim=SIZE, norm=True)
class NormalizedThenGated(Gated):
    """Muse Spark's: each head's result has a root mean square of 1 before its gate."""

    def __init__(self):
        super().__init__()
        self.o_norm = nn.RMSNorm(SIZE, eps=1e-5, elementwise_affine=False)

    def normalized(self, y):
        return self.o_norm(y)

    def gated(self, y, x):
        return super().gated(self.normalized(y.unflatten(-1, (HEADS, SIZE))).flatten(2), x)


@near
class NormalizedBehindTheGate(NormalizedThenGated):
    def gated(self, y, x):
        return self.normalized((y * self.gate(x)).unflatten(-1, (HEADS, SIZE))).flatten(2)


@near
class NormalizedOverAllHeads(NormalizedThenGated):
    def normalized(self, y):
        return y * torch.rsqrt(y.square().mean((-1, -2), keepdim=True) + 1e-5)


@near
class NormalizedInTraining(NormalizedThenGated):
    def normalized(self, y):
        return super().normalized(y) if self.training else y
