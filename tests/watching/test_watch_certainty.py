"""How sure findings are, what would have been seen otherwise, and what cannot be told."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from trainings import mlp, points, train

import normkit as nk
from normkit.watching.causes import by_cause
from normkit.watching.certainty import CERTAIN, LIKELY, POSSIBLE
from normkit.watching.diagnosis import diagnose
from normkit.watching.finding import Finding
from normkit.watching.history import History
from normkit.watching.store import Store


def small(count, steps=100):
    _, seen = train(mlp(norm="batchnorm"), lambda step: points(step, batch=count), steps=steps, every=50)
    [finding] = seen.diagnosis().of("small-batch")
    return finding


@pytest.mark.parametrize(
    "count, steps, sure", [(4, 100, CERTAIN), (8, 100, LIKELY), (9, 100, POSSIBLE), (4, 1, POSSIBLE)]
)
def test_certainty_is_of_how_far_and_how_often(count, steps, sure):
    finding = small(count, steps)
    assert finding.certainty == sure
    assert finding.margin == pytest.approx(10 / count)
    assert finding.otherwise == "at least 10 values"


def test_what_is_read_off_is_certain_at_once():
    model = mlp()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    _, seen = train(model, points, make=lambda p, lr: optimizer, steps=1)
    [finding] = seen.diagnosis().of("left-out")
    assert finding.certainty == CERTAIN
    assert "(certain)" in str(seen.diagnosis())


def test_the_surest_comes_first_and_a_cause_is_as_sure_as_its_effects():
    def made(rule, weight, certainty):
        return Finding(rule, weight, ("0",), "", rule=rule, certainty=certainty)

    grave, sure = made("massive-activations", 9.0, POSSIBLE), made("small-batch", 1.0, CERTAIN)
    assert [f.rule for f in by_cause([grave, sure])] == ["small-batch", "massive-activations"]
    cause, effect = made("large-updates", 5.0, POSSIBLE), made("tokens-alike", 2.0, CERTAIN)
    assert [f.rule for f in by_cause([sure, effect, cause])] == ["large-updates", "tokens-alike", "small-batch"]


def regression(hand_over, steps=60):
    """A loss that the gradient of the output does not tell."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with nk.watch(model, optimizer, every=5) as seen:
        for step in range(steps):
            x, y = points(step)
            loss = F.mse_loss(model(x), F.one_hot(y, 2).float())
            if hand_over:
                seen.loss(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return seen.diagnosis()


def test_a_loss_that_was_never_read_leaves_questions_open():
    [said] = regression(False).unknown
    assert said.endswith(": no loss was read; seen.loss(loss) hands it over")
    assert "the loss diverges" in said
    assert "the learning rate is too high" in said
    assert "Cannot tell whether the loss diverges" in str(regression(False))
    assert regression(True).unknown == ()


def test_too_few_samples_leave_questions_open():
    found = regression(True, steps=10)
    assert not found
    assert any("the loss has spikes" in said and "3 samples, where 6 are needed" in said for said in found.unknown)
    assert found.to_dict()["unknown"] == list(found.unknown)


class Mapped(nn.Module):
    """A block with one linear map."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(8, 8)


def test_attention_that_is_not_heard_is_no_healthy_one():
    class Attention(Mapped):
        def forward(self, x):
            return torch.exp(-self.map(x).square())

    _, seen = train(nn.Sequential(Attention(), nn.Linear(8, 2)), points)
    assert any("attention collapses" in said and "no scores were heard" in said for said in seen.diagnosis().unknown)


def test_attention_whose_heads_are_joined_with_samples_is_named_as_not_heard():
    """Its scores have three axes, (samples * heads, queries, keys), of which nobody says how many are heads."""

    class JoinedAttention(Mapped):
        def forward(self, x):
            return (self.map(x) @ x.mT).softmax(-1) @ x

    torch.manual_seed(0)
    _, seen = train(nn.Sequential(nn.Unflatten(1, (1, 8)), JoinedAttention(), nn.Linear(8, 2)), points)
    assert any("attention collapses" in said and "have three axes" in said for said in seen.diagnosis().unknown)


def test_a_rule_that_fails_is_named_and_hides_no_other():
    def fails(history):
        raise ZeroDivisionError("no steps")

    def sees(history):
        return [Finding("too small", 1.0, ("0",), "")]

    diagnosis = diagnose(History(Store(), {"every": 1}), {"broken": fails, "sound": sees})
    assert [finding.rule for finding in diagnosis.findings] == ["sound"]
    assert diagnosis.notes == ("rule broken could not judge: ZeroDivisionError: no steps",)
