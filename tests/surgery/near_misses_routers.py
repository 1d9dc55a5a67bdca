"""Modules that are almost a router or a connection of residual streams, each wrong in one thing only."""

import torch
from near_misses import lists
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()
DIM, EXPERTS, STREAMS = 10, 6, 3


class Router(nn.Module):
    """What the others differ from: DeepSeek-V3's, without groups."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, DIM))
        self.bias = nn.Buffer(torch.zeros(EXPERTS))
        self.top_k, self.scale = 2, 2.5

    def logits(self, x):
        return F.linear(x, self.weight)

    def scores(self, z):
        return z.sigmoid()

    def choose(self, p):
        return (p + self.bias).topk(self.top_k, -1).indices

    def weigh(self, p, at):
        w = p.gather(-1, at)
        return w / (w.sum(-1, keepdim=True) + 1e-20) * self.scale

    def forward(self, x):
        z = self.logits(x.reshape(-1, DIM))
        p = self.scores(z)
        at = self.choose(p)
        return z, self.weigh(p, at), at


true("router", experts=EXPERTS, top_k=2, score="sigmoid", selection_bias=True, scale=2.5)(Router)


@true("router", score="softmax", renormalize=False, bias=True, selection_bias=False)
class DenseRows(nn.Module):
    """Weights of all experts, most of them 0, and a linear layer of its own."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(DIM, EXPERTS)
        self.k = 3

    def forward(self, x):
        p = self.proj(x).softmax(-1)
        at = p.topk(self.k, -1).indices
        return torch.zeros_like(p).scatter(-1, at, p.gather(-1, at)), at


@true(
    "router", experts=EXPERTS, top_k=2, score="softmax", selection_bias=False, renormalize=False, groups=3,
    kept_groups=1, group_score="max",
)  # fmt: skip
class BestOfGroups(nn.Module):
    """Experts of the groups whose largest is largest, as DeepSeek-V2 chooses them."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, DIM))
        self.top_k, self.n_group, self.topk_group = 2, 3, 1

    def forward(self, x):
        p = F.linear(x, self.weight).softmax(-1)
        groups = p.unflatten(-1, (self.n_group, -1))
        best = groups.amax(-1).topk(self.topk_group, -1).indices
        kept = torch.zeros_like(groups[..., 0]).scatter(-1, best, 1).unsqueeze(-1).bool()
        w, at = groups.where(kept, 0).flatten(-2).topk(self.top_k, -1)
        return w, at


@near
class BiasWeighsToo(Router):
    def weigh(self, p, at):
        return super().weigh(p + self.bias, at)


@near
class RenormalizedByMore(Router):
    def weigh(self, p, at):
        w = p.gather(-1, at)
        return w / (w.sum(-1, keepdim=True) + 1e-2) * self.scale


@near
class SquaredWeights(Router):
    def weigh(self, p, at):
        return super().weigh(p.square(), at)


@near
class RenormalizedInTraining(Router):
    def weigh(self, p, at):
        return super().weigh(p, at) if self.training else p.gather(-1, at) * self.scale


@near
class JitterInTraining(Router):
    def logits(self, x):
        return super().logits(x * torch.empty_like(x).uniform_(0.99, 1.01) if self.training else x)


@near
class Tempered(Router):
    def logits(self, x):
        return super().logits(x) / 2


@near
class SoftmaxOfSigmoids(Router):
    def scores(self, z):
        return z.sigmoid().softmax(-1)


@near
class LastExpertNever(Router):
    def choose(self, p):
        return super().choose(p * (torch.arange(EXPERTS) < EXPERTS - 1) - (torch.arange(EXPERTS) == EXPERTS - 1) * 9.0)


@near
class TheSmallest(Router):
    def choose(self, p):
        return (p + self.bias).topk(self.top_k, -1, largest=False).indices


@near
class NumbersFromOne(Router):
    def forward(self, x):
        z, w, at = super().forward(x)
        return z, w, (at + 1) % EXPERTS


@near
class WeightsTheOtherWayRound(Router):
    def forward(self, x):
        z, w, at = super().forward(x)
        return z, w.flip(-1), at


@near
class NothingForLateTokens(Router):
    def forward(self, x):
        z, w, at = super().forward(x)
        return z, w * (torch.arange(len(w)) < 9)[:, None], at


@near
class ClampedLogits(Router):
    def logits(self, x):
        return super().logits(x).clamp(-6, 6)


@near
class CappedLogits(Router):
    def logits(self, x):
        return 30 * torch.tanh(super().logits(x) / 30)


@near
class NormalizedInput(Router):
    def logits(self, x):
        return super().logits(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6))


@near
class CosineLogits(Router):
    def logits(self, x):
        return F.linear(x, F.normalize(self.weight, dim=-1))


@near
class MeanOfTheTokens(Router):
    def logits(self, x):
        return super().logits(x + 1e-2 * x.mean(0))


@near
class OneWeightForAll(Router):
    def weigh(self, p, at):
        return super().weigh(p, at).amax(-1, keepdim=True).expand(at.shape)


@near
class HalvesOfWeights(Router):
    def weigh(self, p, at):
        return super().weigh(p, at).half().to(p.dtype)


@near
class HiddenGroupsCountZero(Router):
    def __init__(self):
        super().__init__()
        self.n_group, self.topk_group = 3, 1

    def choose(self, p):
        choice = (p + self.bias - 2).unflatten(-1, (3, -1))  # below 0: hidden groups come first
        best = choice.sum(-1).argmax(-1, keepdim=True)
        return (
            torch.zeros_like(choice)
            .scatter(-2, best[..., None].expand(*best.shape, 2), choice)
            .flatten(-2)
            .topk(2, -1)
            .indices
        )


@near
class AnotherRowForLongTexts(Router):
    def logits(self, x):
        z = super().logits(x)
        return z.roll(1, -1) if len(x) > 30 else z


@near
class SinglePrecisionChoice(Router):
    def choose(self, p):
        return super().choose((8 * p).round() / 8 + 1e-4 * torch.arange(EXPERTS))


@near
class HashOfTheTokens(Router):
    def choose(self, p):
        return (torch.arange(len(p))[:, None] + torch.arange(2)) % EXPERTS


class Connection(nn.Module):
    """What the others differ from: DeepSeek-V4's."""

    def __init__(self):
        super().__init__()
        n = STREAMS
        self.fn = nn.Parameter(torch.randn(n * (n + 2), n * DIM))
        self.base = nn.Parameter(torch.zeros(n * (n + 2)))
        self.scale = nn.Parameter(torch.ones(3))
        self.iters, self.eps = 5, 1e-4

    def flat(self, x):
        x = x.flatten(-2)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)

    def mixed(self, m):
        m = m.softmax(-1) + self.eps
        m = m / (m.sum(-2, keepdim=True) + self.eps)
        for _ in range(self.iters - 1):
            m = m / (m.sum(-1, keepdim=True) + self.eps)
            m = m / (m.sum(-2, keepdim=True) + self.eps)
        return m

    def written(self, w):
        return 2 * w.sigmoid()

    def forward(self, x):
        n = STREAMS
        parts = F.linear(self.flat(x), self.fn).split([n, n, n * n], -1)
        read, write, mix = (
            p * s + b for p, s, b in zip(parts, self.scale, self.base.split([n, n, n * n]), strict=True)
        )
        read = read.sigmoid() + self.eps
        return self.written(write), self.mixed(mix.unflatten(-1, (n, n))), (read.unsqueeze(-1) * x).sum(-2)


true("mhc", streams=STREAMS, iterations=5, eps=1e-4)(Connection)


@near
class MixedTheOtherWay(Connection):
    def mixed(self, m):
        return super().mixed(m).mT


@near
class RowsLast(Connection):
    def mixed(self, m):
        return super().mixed(m.mT).mT


@near
class WrittenOnce(Connection):
    def written(self, w):
        return w.sigmoid()


@near
class EachStreamByItself(Connection):
    def flat(self, x):
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)).flatten(-2)


@near
class OneIterationLessForLongTexts(Connection):
    def mixed(self, m):
        m = super().mixed(m)
        return m / m.sum(-1, keepdim=True) if m.shape[-3] > 30 else m


@near
class PlainSoftmax(Connection):
    def mixed(self, m):
        return m.softmax(-1)


class Head(nn.Module):
    """What the others differ from: DeepSeek-V4's."""

    def __init__(self):
        super().__init__()
        self.hc_fn = nn.Parameter(torch.randn(STREAMS, STREAMS * DIM))
        self.hc_base, self.hc_scale = nn.Parameter(torch.zeros(STREAMS)), nn.Parameter(torch.ones(1))
        self.eps = 1e-5

    def shares(self, x):
        flat = x.flatten(-2)
        z = F.linear(flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + 1e-6), self.hc_fn)
        return (z * self.hc_scale + self.hc_base).sigmoid() + self.eps

    def forward(self, x):
        return (self.shares(x).unsqueeze(-1) * x).sum(-2)


true("mhc-head", streams=STREAMS, eps=1e-5)(Head)


@near
class SharesThatSumToOne(Head):
    def shares(self, x):
        s = super().shares(x)
        return s / s.sum(-1, keepdim=True)


@near
class HeadOfTheFirstToken(Head):
    def shares(self, x):
        return super().shares(x[:, :1]).expand(*x.shape[:-1])


class NormalizedFirst(Router):
    """What the others differ from: Gemma 4's, which normalizes tokens first and has a factor for each expert."""

    def __init__(self):
        super().__init__()
        self.gain, self.factor = nn.Parameter(torch.ones(DIM)), nn.Parameter(torch.ones(EXPERTS))
        self.eps, self.scale, self.root_scale = 1e-5, 1.0, DIM**-0.5

    def unit(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def logits(self, x):
        return super().logits(self.unit(x) * self.gain * self.root_scale)

    def scores(self, z):
        return z.softmax(-1)

    def choose(self, p):
        return p.topk(self.top_k, -1).indices

    def weigh(self, p, at):
        return super().weigh(p, at) * self.factor[at]


true("router", input_norm=True, expert_scale=True, renormalize=True, eps=1e-5, logit_scale=DIM**-0.5, bias=False)(
    NormalizedFirst
)


@near
class CentredFirst(NormalizedFirst):
    def unit(self, x):
        return super().unit(x - x.mean(-1, keepdim=True))


@near
class UnitOfAllTokens(NormalizedFirst):
    def unit(self, x):
        return x * torch.rsqrt(x.square().mean() + self.eps)


@near
class FactorInTheSum(NormalizedFirst):
    def weigh(self, p, at):
        return Router.weigh(self, p * self.factor, at)


@near
class FactorInTheChoice(NormalizedFirst):
    def choose(self, p):
        return super().choose(p * self.factor)


@near
class FactorsOfThePlaces(NormalizedFirst):
    def weigh(self, p, at):
        return Router.weigh(self, p, at) * self.factor[: self.top_k]


@near
class GainsThatStartAtZero(NormalizedFirst):
    def logits(self, x):
        return F.linear(self.unit(x) * (1 + self.gain) * DIM**-0.5, self.weight)


class ByLogits(Router):
    """What the others differ from: Kolibri's, whose shift is added to logits, and not to scores."""

    def forward(self, x):
        z = self.logits(x.reshape(-1, DIM))
        at = self.choose(z)
        return z, self.weigh(self.scores(z), at), at


true("router", choose_by="logits", score="sigmoid", selection_bias=True, renormalize=True, scale=2.5)(ByLogits)


@near
class ByLogitsAndTheirSquares(ByLogits):
    def choose(self, p):
        return super().choose(p + 1e-2 * p.square())


@near
class ShiftThatWeighs(ByLogits):
    def scores(self, z):
        return (z + 2 * self.bias).sigmoid()


@near
class TwiceTheShift(ByLogits):
    def choose(self, p):
        return (p + 2 * self.bias).topk(self.top_k, -1).indices


class Multiplied(Router):
    """What the others differ from: Muse Spark's, with a temperature."""

    def __init__(self):
        super().__init__()
        self.multiplier = 0.25

    def logits(self, x):
        return super().logits(x) * self.multiplier


true("router", logit_scale=0.25, score="sigmoid", selection_bias=True)(Multiplied)


@near
class MultipliedInTraining(Multiplied):
    def logits(self, x):
        return super().logits(x) if self.training else Router.logits(self, x)


@near
class MultipliedChoice(Multiplied):
    def logits(self, x):
        return Router.logits(self, x)

    def choose(self, p):
        return super().choose(p * self.multiplier)


class Always(Router):
    """What the others differ from: Inkling's, whose last experts take every token, and share in the sum."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Buffer(torch.zeros(EXPERTS - 2))
        self.whole, self.scale, self.shared_experts = nn.Parameter(torch.ones(1)), 4.0, 2

    def shares(self, chosen, always):
        both = torch.cat([chosen, always], -1)
        return both / both.sum(-1, keepdim=True)

    def forward(self, x):
        z = self.logits(x.reshape(-1, DIM))
        p = self.scores(z)
        at = self.choose(p[:, :-2])
        w = self.shares(p.gather(-1, at), p[:, -2:]) * self.scale * self.whole
        return z[:, :-2], w[:, : self.top_k], at, w[:, self.top_k :]


true("router", shared=2, experts=EXPERTS, top_k=4, score="sigmoid", expert_scale=True, scale=4.0)(Always)


@near
class ALearnedScale(Router):
    def __init__(self):
        super().__init__()
        self.whole = nn.Parameter(torch.ones(1))

    def weigh(self, p, at):
        return super().weigh(p, at) * self.whole.square()


@near
class AlwaysApart(Always):
    def shares(self, chosen, always):
        return torch.cat([chosen / chosen.sum(-1, keepdim=True), always / always.sum(-1, keepdim=True)], -1)


@near
class AlwaysWithoutAShare(Always):
    def shares(self, chosen, always):
        return torch.cat([chosen, always], -1) / chosen.sum(-1, keepdim=True)


@near
class AlwaysTheOtherWayRound(Always):
    def shares(self, chosen, always):
        return super().shares(chosen, always.flip(-1))


class Table(Router):
    """What the others differ from: that of DeepSeek-V4's first layers, whose experts stand in a table."""

    def __init__(self):
        super().__init__()
        del self.bias
        self.table = nn.Buffer(torch.zeros(50, 2, dtype=torch.long))

    def find(self, numbers):
        return self.table[numbers.reshape(-1)]

    def forward(self, x, numbers):
        z = self.logits(x.reshape(-1, DIM))
        at = self.find(numbers)
        return z, self.weigh(self.scores(z), at), at


true("router", experts=EXPERTS, top_k=2, score="sigmoid", selection_bias=False, scale=2.5)(Table)


@near
class TableOfTheTokenBefore(Table):
    def find(self, numbers):
        return super().find(numbers.roll(1))


@near
class TableInTraining(Table):
    def find(self, numbers):
        return super().find(numbers if self.training else numbers * 0)


@near
class TableOfOtherWeights(Table):
    def weigh(self, p, at):
        return super().weigh(p, (at + 1) % EXPERTS)


class Apart(Connection):
    """What the others differ from: HY-V4's, whose streams do not mix."""

    def __init__(self):
        super().__init__()
        n = STREAMS
        self.fn = nn.Parameter(torch.randn(2 * n, n * DIM))
        self.base, self.scale = nn.Parameter(torch.zeros(2 * n)), nn.Parameter(torch.ones(2))
        self.magnitude = 1.5

    def written(self, w):
        return self.magnitude * w.sigmoid() + self.eps

    def forward(self, x):
        parts = F.linear(self.flat(x), self.fn).chunk(2, -1)
        read, write = (p * s + b for p, s, b in zip(parts, self.scale, self.base.chunk(2), strict=True))
        return self.written(write), ((read.sigmoid() + self.eps).unsqueeze(-1) * x).sum(-2)


true("mhc", streams=STREAMS, iterations=0, eps=1e-4, magnitude=1.5, write_eps=1e-4)(Apart)


@near
class ApartAndWrittenAsRead(Apart):
    def forward(self, x):
        write, y = super().forward(x)
        return write.flip(-1), y


@near
class ApartAndTwoStepsOfSigmoid(Apart):
    def written(self, w):
        return self.magnitude * w.sigmoid().clamp(max=0.9) + self.eps
