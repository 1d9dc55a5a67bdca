"""The loss is watched, and what a rate that is too high brings about stands beneath it."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from trainings import decoder, language, mlp, points

import normkit as nk
from normkit.watching import load
from normkit.watching.causes import FOLLOWS, by_cause
from normkit.watching.diagnosis import all_rules, diagnose
from normkit.watching.finding import Finding
from normkit.watching.history import LOSS, PEAK, History
from normkit.watching.store import LARGEST, MEAN, Store

FACTS = {"shapes": {"w": [10, 4]}, "blocks": [], "kinds": {}, "groups": [], "group_of": {}}


def told(losses, rule, peaks=None, facts=FACTS):
    """What a rule makes of a loss at every fifth step."""
    store = Store()
    for place, value in enumerate(losses):
        peak = value if peaks is None else peaks[place]
        store.add(5 * place + 5, [(LOSS, LOSS), (LOSS, PEAK)], [MEAN, LARGEST], torch.tensor([value, peak]))
    return [*all_rules()[rule](History(store, facts))]


def falling(count=30, start=2.3, end=0.1):
    return [start * (end / start) ** (place / count) for place in range(count)]


def test_a_loss_that_falls_is_no_finding():
    for rule in ("loss-diverges", "loss-stands", "loss-spikes"):
        assert not told(falling(), rule)
        assert not told([-value for value in reversed(falling())], rule), "a likelihood below zero"


@pytest.mark.parametrize("worst", [4.0, 1e29, math.inf, math.nan])
def test_a_loss_that_rises_diverges(worst):
    [finding] = told([*falling(), *[worst] * 15], "loss-diverges")
    assert finding.since == 155
    assert "it began at 2.3" in finding.evidence


def test_a_loss_that_gives_back_what_it_gained_diverges():
    assert told([*falling(), *[2.1] * 15], "loss-diverges")
    assert not told([*falling(), *[1.0] * 15], "loss-diverges")


def test_a_loss_that_differs_by_half_from_batch_to_batch_does_not_diverge():
    """As squared distances of a few numbers do, where a first batch may well be an easy one."""
    chance = np.random.default_rng(0)
    for _ in range(20):
        noisy = chance.chisquare(6, 60).astype(np.float32) / 6
        assert not told([0.6, *noisy.tolist()], "loss-diverges")
        assert told([0.6, *noisy[:30].tolist(), *(5 + 3 * noisy[30:]).tolist()], "loss-diverges")


def test_an_easy_batch_late_in_the_tuning_of_a_trained_model_is_no_gain_to_be_lost():
    tuning = [1.3, 1.17, 1.09, 1.23, 1.38, 1.24, 1.27, 1.21, 1.45, 1.27, 1.29, 1.39, 1.32, 1.2, 1.09, 1.02]
    assert not told([*tuning, 1.34, 1.29, 1.28], "loss-diverges")


def test_a_loss_that_stands_where_it_began():
    [finding] = told([2.4, *[2.38, 2.41] * 10], "loss-stands")
    assert "equal probabilities of its 10 outputs give 2.3" in finding.evidence
    assert not told([2.4, *[2.38, 2.41] * 3], "loss-stands"), "it is too soon"


def test_a_loss_that_has_come_to_what_guessing_gives():
    assert told([9.0, 6.0, 4.0, *[2.32, 2.31] * 10], "loss-stands")
    assert not told([9.0, 6.0, 4.0, *[1.9, 1.91] * 10], "loss-stands")


def test_a_spike_between_two_samples_is_seen():
    usual = falling()
    peaks = [*usual]
    peaks[20] = 5.0
    [finding] = told(usual, "loss-spikes", peaks)
    assert finding.since == 105
    peaks[20] = 4 * usual[20]
    assert not told(usual, "loss-spikes", peaks), "a hard batch of a run that is nearly done"


class Own(nn.Module):
    """A model that gives its own loss, in one of the ways that are in use."""

    def __init__(self, way):
        super().__init__()
        self.layer, self.way = nn.Linear(8, 2), way

    def forward(self, x, y):
        scores = self.layer(x)
        loss = F.cross_entropy(scores, y)
        return {"alone": loss, "first": (loss, scores), "named": {"logits": scores, "loss": loss}}[self.way]


@pytest.mark.parametrize("way", ["alone", "first", "named"])
def test_the_loss_that_a_model_gives_is_taken(way):
    model = Own(way)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with nk.watch(model, optimizer, every=2) as seen:
        for step in range(8):
            output = model(*points(step))
            loss = output if way == "alone" else output[0] if way == "first" else output["loss"]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert seen.history().steps == [1, 2, 4, 6, 8]
    assert seen.history().series(LOSS, LOSS) == pytest.approx([losses[i] for i in (0, 1, 3, 5, 7)])


def test_the_loss_of_micro_batches_is_their_mean_and_other_passes_count_not():
    model, losses = Own("alone"), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer) as seen:
        for part in range(4):
            loss = model(*points(part))
            loss.backward()
            losses.append(loss.item())
        with torch.no_grad():
            model(100 * points(4)[0], points(4)[1])
        optimizer.step()
    assert seen.history().series(LOSS, LOSS) == pytest.approx([sum(losses) / 4])


def test_losses_between_samples_are_averaged_and_kept_in_a_file(tmp_path):
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer, every=3, to=tmp_path) as seen:
        for step in range(6):
            loss = F.cross_entropy(model(points(step)[0]), points(step)[1])
            seen.loss(float(step) if step % 2 else torch.tensor(float(step)))
            loss.backward()
            optimizer.step()
    for history in (seen.history(), load(tmp_path / "watch.jsonl")):
        assert history.steps == [1, 3, 5, 6] if 5 in history.steps else history.steps == [1, 3, 6]
        assert history.series(LOSS, PEAK)[-1] == 5
        assert history.series(LOSS, LOSS)[:2].tolist() == [0, 1.5]


def test_a_loss_and_a_distance_of_numpy_are_numbers():
    seen = nk.watch(nn.Linear(2, 2), every=np.int64(5))
    assert type(seen.facts["every"]) is int
    seen.loss(np.float32(1.5))
    seen.loss(np.int64(2))
    total, count, largest = seen.losses
    assert (float(total), count, float(largest)) == (3.5, 2, 2.0)


@pytest.mark.parametrize(
    "value, kind", [("1", TypeError), (True, TypeError), (None, TypeError), (torch.ones(2), ValueError)]
)
def test_what_is_no_loss_is_refused(value, kind):
    seen = nk.watch(nn.Linear(2, 2))
    with pytest.raises(kind, match="loss must be a number or a tensor of one, not"):
        seen.loss(value)
    assert seen.losses is None


def run(model, batches, optimizer, steps=80):
    with nk.watch(model, optimizer, every=20) as seen:
        for step in range(steps):
            x, y = batches(step)
            loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
            seen.loss(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return seen


def digits(step):
    images, labels = load_digits(return_X_y=True)
    chosen = torch.randint(len(labels), (64,), generator=torch.Generator().manual_seed(step))
    return torch.tensor(images / 16, dtype=torch.float32)[chosen], torch.tensor(labels)[chosen]


def normed():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 10))


def saturated():
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Linear(64, 64), nn.Tanh())]
    for layer in layers[::2]:
        layer.weight.data *= 60
    return nn.Sequential(*layers, nn.Linear(64, 10))


RATES = {
    "SGD 10 before a norm": (lambda p: torch.optim.SGD(p, lr=10.0), normed, digits),
    "SGD 30 before a norm": (lambda p: torch.optim.SGD(p, lr=30.0), normed, digits),
    "SGD .5 with momentum": (lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9), lambda: mlp(4, gain=2.0), points),
    "SGD 10 with momentum": (lambda p: torch.optim.SGD(p, lr=10.0, momentum=0.9), mlp, points),
    "SGD 100": (lambda p: torch.optim.SGD(p, lr=100.0), mlp, points),
    "AdamW 1": (lambda p: torch.optim.AdamW(p, lr=1.0), lambda: decoder(norm="layernorm", std=0.5), language),
}


@pytest.mark.parametrize("name", RATES)
def test_a_rate_that_is_too_high_is_named_first(name):
    make, build, batches = RATES[name]
    model = build()
    diagnosis = run(model, batches, make(model.parameters())).diagnosis()
    assert diagnosis[0].rule == "rate-too-high"
    assert diagnosis[0].since <= 5
    assert {finding.cause for finding in diagnosis[1:]} == {"rate-too-high"}
    assert f"follows from: {diagnosis[0].title}" in str(diagnosis)


def test_a_rate_that_moves_the_head_alone_by_most_of_its_length_is_named_first():
    model = saturated()
    diagnosis = run(model, digits, torch.optim.SGD(model.parameters(), lr=100.0)).diagnosis()
    assert [finding.rule for finding in diagnosis][:2] == ["rate-too-high", "loss-diverges"]
    assert diagnosis[0].where == ("8.weight",)


def test_what_it_names_helps():
    make, build, batches = RATES["AdamW 1"]
    model = build()
    optimizer = make(model.parameters())
    [remedy] = run(model, batches, optimizer).diagnosis()[0].remedies
    well = build()
    other = make(well.parameters())
    exec(remedy.line, {"optimizer": other})
    assert "rate-too-high" not in [finding.rule for finding in run(well, batches, other).diagnosis()]
    assert other.param_groups[0]["lr"] < 0.2


def test_units_that_were_dead_before_the_first_step_have_no_rate_for_a_cause():
    model = mlp()
    model[2].bias.data -= 90
    diagnosis = run(model, points, torch.optim.SGD(model.parameters(), lr=1e-3)).diagnosis()
    assert diagnosis[0].rule == "dead-units"
    assert not diagnosis[0].cause


def finding(rule, weight, since=None):
    return Finding(rule, weight, ("0",), "", since=since, rule=rule)


def test_effects_stand_behind_the_cause_that_is_first_in_the_chain():
    found = [
        finding("loss-stands", 2.7, 40),
        finding("dead-units", 4.0, 15),
        finding("left-out", 3.3),
        finding("rate-too-high", 3.0, 5),
        finding("no-gradient", 3.2),
    ]
    order = by_cause(found)
    assert [one.rule for one in order] == ["rate-too-high", "dead-units", "no-gradient", "loss-stands", "left-out"]
    assert [one.cause for one in order] == ["", *["rate-too-high"] * 3, ""]


def test_what_came_before_is_no_effect():
    order = by_cause(
        [finding("rate-too-high", 6.0, 5), finding("dead-units", 4.0, 5), finding("saturated-function", 9.0, 1)]
    )
    assert not any(one.cause for one in order)
    assert [one.rule for one in order] == ["saturated-function", "rate-too-high", "dead-units"]


def test_causes_are_rules_and_none_is_its_own():
    rules = set(all_rules())
    assert rules >= {*FOLLOWS, *(effect for effects in FOLLOWS.values() for effect in effects)}
    done = set()
    for _ in rules:
        done |= {rule for rule in rules if set(FOLLOWS.get(rule, ())) <= done}
    assert done == rules


def test_a_rule_that_was_not_asked_leaves_effects_alone():
    model = mlp()
    seen = run(model, points, torch.optim.SGD(model.parameters(), lr=10.0, momentum=0.9))
    asked = {name: all_rules()[name] for name in ("loss-diverges", "loss-stands", "dead-units", "large-updates")}
    assert diagnose(seen.history(), asked)[0].rule == "large-updates"


@pytest.mark.parametrize("depth", [4, 6])
@pytest.mark.parametrize("nested", [False, True])
def test_a_plain_network_has_no_residual_stream(depth, nested):
    model = mlp(depth, gain=4.0)
    if nested:
        model = nn.Sequential(*(nn.Sequential(*model[i : i + 2]) for i in range(0, 2 * depth, 2)), model[-1])
    seen = run(model, points, torch.optim.Adam(model.parameters(), lr=1e-3))
    late = seen.history().late("rms")
    blocks = [late[name] for name in seen.facts["blocks"]]
    assert blocks[-2] > 8 * blocks[0], "it does grow"
    assert not seen.diagnosis().of("residual-growth")


def test_no_norm_is_proposed_where_one_stands():
    for norm, proposed in (
        (None, ["batchnorm", "layernorm"]),
        ("layernorm", ["a function that does not die", "another start of the layer"]),
    ):
        model = mlp(norm=norm)
        model[3 if norm is None else 5].register_forward_pre_hook(lambda _, x: (x[0] - 90,))
        seen = run(model, points, torch.optim.Adam(model.parameters(), lr=1e-3), steps=10)
        [found] = seen.diagnosis().of("dead-units")
        assert [remedy.name for remedy in found.remedies] == proposed


@pytest.mark.parametrize(("layers", "words"), [(1, "this holds for 1 layer."), (3, "this holds for 3 layers.")])
def test_scores_that_grow_name_how_many_layers(layers, words):
    store, names = Store(), [f"blocks.{at}" for at in range(layers)]
    for step in range(1, 9):
        scores = torch.tensor([30.0 * step + at for at in range(layers)])
        store.add(step, [(name, "logit") for name in names], [LARGEST] * layers, scores)
    [finding] = all_rules()["score-growth"](History(store, {**FACTS, "attends": True}))
    assert finding.evidence == f"the largest score of {names[-1]} grew from {29 + layers} to {239 + layers}, " + (
        f"and still grows; {words}"
    )
