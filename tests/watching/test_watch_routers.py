"""Routers that a watch looks at: loads, dropped tokens, collapse, and a softmax taken twice."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from trainings import decoder, language, train

from normkit.watching.signals import attention, selection_bias
from normkit.watching.signals.routing import shares
from normkit.watching.signals.signal import Call


def mixture(router="gpt-oss-router:experts=8,top_k=2", **options):
    return decoder(feedforward="moe", hidden=16, router=router, feedforward_options=options)


def collapsed(model, shift):
    for layer in model.layers:
        with torch.no_grad():
            layer.feedforward.router.bias.copy_(torch.tensor([shift, shift, 0, 0, 0, 0, 0, 0]))
    return model


def test_router_collapse():
    _, seen = train(collapsed(mixture(), 30.0), language)
    [finding] = seen.diagnosis().of("router-collapse")
    assert set(finding.where) == {f"layers.{layer}.feedforward.router" for layer in range(2)}
    assert "75% of the experts" in finding.evidence
    assert "4 times its share; 2 of 2 routers are so." in finding.evidence
    assert finding.since == 1


def test_routers_that_choose_among_all_are_healthy():
    _, seen = train(mixture(), language)
    assert not seen.diagnosis().of("router-collapse")
    assert not seen.diagnosis().of("router-double-softmax")
    load = seen.history().late("load")
    assert len(load) == 2
    assert all(1 <= value < 4 for value in load.values())


@pytest.mark.parametrize("capacity, most", [(None, 0.0), (1.0, 0.6)])
def test_dropped_tokens_are_a_signal(capacity, most):
    _, seen = train(mixture(capacity=capacity), language)
    dropped = seen.history().late("dropped")
    assert set(dropped) == {f"layers.{layer}.feedforward" for layer in range(2)}
    assert all(0 <= value <= most for value in dropped.values())
    assert (min(dropped.values()) > 0) == (capacity is not None)


class TopKRouter(nn.Module):
    """A router as many write it, with its matrix in a part of its own, and a bias as DeepSeek-V3's."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.register_buffer("e_score_correction_bias", torch.zeros(4))

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        chosen = (scores + self.e_score_correction_bias).topk(2, -1)[1]
        return scores.gather(-1, chosen), chosen


class Routed(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = TopKRouter(), nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        weights, chosen = self.router(x)
        parts = [(weights * (chosen == i)).sum(-1, keepdim=True) * e(x) for i, e in enumerate(self.experts)]
        return x + torch.stack(parts).sum(0)


def halves(step):
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(step))
    return x, (x[:, 0] > 0).long()


def test_a_router_with_a_layer_inside_is_read_as_counted_by_hand():
    torch.manual_seed(0)
    model = nn.Sequential(Routed(), nn.Linear(8, 2))
    with torch.no_grad():
        chosen = model[0].router(halves(0)[0])[1]
    _, seen = train(model, halves, steps=1)
    load = torch.bincount(chosen.flatten(), minlength=4) / chosen.numel()
    assert seen.history().late("load")["0.router"] == pytest.approx(float(load.max()) * 4)
    assert seen.history().late("idle")["0.router"] == float((load == 0).float().mean())


@pytest.mark.parametrize("drift", [0.0, 0.02, 0.4])
def test_the_drift_of_a_selection_bias(drift):
    torch.manual_seed(0)
    model = nn.Sequential(Routed(), nn.Linear(8, 2))

    def batches(step):
        model[0].router.e_score_correction_bias += drift * torch.tensor([1.0, 0.0, 0.0, -1.0])
        return halves(step)

    _, seen = train(model, batches, steps=12, every=1)
    spread = seen.history().series("0.router", "bias_spread")
    assert spread == pytest.approx([2 * drift * step for step in range(1, 13)], abs=1e-5)
    findings = seen.diagnosis().of("router-bias")
    assert [finding.since for finding in findings] == ([2] if drift == 0.4 else [])
    if findings:
        assert "spans" in findings[0].evidence
        assert "it began at 0.8" in findings[0].evidence


def test_a_selection_bias_that_is_a_parameter_is_read_without_its_gradient():
    router = nn.Module()
    router.e_score_correction_bias = nn.Parameter(torch.tensor([1.0, 0.0, -2.0]))
    spread = selection_bias.read(Call(router, None, None, -1))
    assert spread.tolist() == [3.0]
    assert not spread.requires_grad


def test_the_bias_of_a_router_whose_scores_have_no_bound_is_not_judged():
    model = mixture("deepseek-v4-router:experts=8,top_k=2")
    _, seen = train(model, language, steps=3)
    assert seen.history().names("bias_spread") == []
    _, seen = train(mixture("deepseek-v3-router:experts=8,top_k=2,groups=1,kept_groups=1"), language, steps=3)
    assert len(seen.history().names("bias_spread")) == 2


class OwnMoE(nn.Module):
    """A mixture as many write it; ``times`` softmaxes of the gate's scores."""

    def __init__(self, times):
        super().__init__()
        self.times = times
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        weights = self.gate(x)
        for _ in range(self.times):
            weights = F.softmax(weights, -1)
        return sum(weights[:, i, None] * F.relu(expert(x)) for i, expert in enumerate(self.experts))


@pytest.mark.parametrize("times", [1, 2])
def test_a_softmax_taken_twice(times):
    torch.manual_seed(0)

    def points(step):
        x = torch.randn(64, 8, generator=torch.Generator().manual_seed(step))
        return x, (x[:, 0] > 0).long()

    _, seen = train(nn.Sequential(nn.Linear(8, 8), OwnMoE(times), nn.Linear(8, 2)), points)
    findings = seen.diagnosis().of("router-double-softmax")
    assert [finding.where for finding in findings] == [("1",)] * (times - 1)
    if times == 2:
        assert findings[0].evidence == "In 1 a softmax is taken of numbers that are not negative and sum to 1."
        assert findings[0].since == 1


@pytest.mark.parametrize(
    "scores, twice", [([0.2, 0.8], 1), ([0.2, 0.9], 0), ([-0.2, 1.2], 0), ([0.0, 0.0], 0), ([1.0], 0)]
)
def test_only_shares_of_one_are_taken_for_a_softmax(scores, twice):
    assert shares(torch.tensor([scores])).tolist() == [twice]


class OddMoE(OwnMoE):
    """Hands scores over by name, and takes a softmax of a lone number."""

    def forward(self, x):
        return x * torch.softmax(input=self.gate(x), dim=-1)[:, :1] * F.softmax(x.sum(), dim=0)


def test_no_softmax_of_a_mixture_ends_the_training():
    model = nn.Sequential(nn.Linear(8, 8), OddMoE(1), nn.Linear(8, 2))
    losses, seen = train(model, lambda step: (torch.randn(64, 8), torch.zeros(64, dtype=torch.long)), steps=3)
    assert len(losses) == 3
    assert seen.history().late("softmax_twice")["1"] == 0
    assert not seen.history().notes


def test_attention_that_cannot_be_read_is_reported_and_ends_nothing(monkeypatch):
    def fail(*args, **kwargs):
        raise ValueError("no scores")

    monkeypatch.setitem(attention.HEARS, F.scaled_dot_product_attention, fail)
    losses, seen = train(decoder(), language, steps=3)
    assert len(losses) == 3
    assert any("attention of layers.0" in note and "no scores" in note for note in seen.history().notes)
