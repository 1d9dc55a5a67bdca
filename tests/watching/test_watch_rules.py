"""Each rule finds the illness that it is for, in a training that has it, and what it names helps there."""

import ast
import dataclasses
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from trainings import decoder, language, mlp, pictures, points, run_lines, train

import normkit as nk
from normkit import watching
from normkit.watching import facts
from normkit.watching.causes import by_cause
from normkit.watching.finding import Finding
from normkit.watching.history import DATA, LOSS, History
from normkit.watching.rules import (
    half_headroom,
    idle_blocks,
    initial_scale,
    large_updates,
    loss_spikes,
    lost_gains,
    no_warm_up,
    outlying_batch,
    residual_growth,
    running_statistics,
    small_batch,
    stalled_weights,
    tokens_alike,
    vanishing_gradient,
)
from normkit.watching.signals import parameters, running, squash
from normkit.watching.signals.activation import dead_share
from normkit.watching.store import MEAN, MISSING, Store

SGD = torch.optim.SGD


def momentum(parameters, lr):
    return SGD(parameters, lr=lr, momentum=0.9)


def found(seen, rule):
    """The one finding of a rule, which tells where, and what it leads to."""
    [finding] = seen.diagnosis().of(rule)
    assert finding.where
    assert finding.evidence.endswith(".")
    assert finding.leads
    assert finding.otherwise
    run_lines(finding, seen)
    return finding


def absent(seen, rule):
    return not seen.diagnosis().of(rule)


def names(finding):
    return [remedy.name for remedy in finding.remedies]


def late(losses):
    return sum(losses[-5:]) / 5


def evaluated(model, batches, steps=range(1000, 1010)):
    model.eval()
    with torch.no_grad():
        return sum(F.cross_entropy(model(x), y).item() for x, y in map(batches, steps)) / len(steps)


def test_not_a_number_is_reported_where_it_first_appears():
    class Root(nn.Module):
        def forward(self, x):
            return (x - 2).sqrt()

    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), Root(), nn.Linear(8, 2))
    _, seen = train(model, points, steps=10)
    finding = found(seen, "not-a-number")
    assert finding.where == ("3",), "the root itself is no layer; what it feeds is"
    assert finding.since == 1
    assert seen.diagnosis()[0] == finding


def test_infinity_that_comes_later_is_reported_with_its_step():
    def burst(step):
        x, y = points(step)
        return x * (1e38 if step >= 12 else 1), y

    _, seen = train(mlp(), burst, steps=20, every=2)
    finding = found(seen, "not-a-number")
    assert (finding.where, finding.since) == (("0",), 14)
    assert "at step 12 all was finite" in finding.evidence


def test_residual_growth():
    def heavy(norm, placement):
        model = decoder(depth=5, norm=norm, placement=placement)
        for layer in model.layers:
            layer.feedforward.up.weight.data *= 3
            layer.feedforward.down.weight.data *= 3
        return model

    ill, seen = train(heavy(lambda dim: nn.Identity(), "pre-norm"), language, steps=10)
    finding = found(seen, "residual-growth")
    assert finding.where == ("layers.4",)
    assert names(finding) == ["smaller weights", "peri-norm", "layernorm-scaling"]
    for name in names(finding)[1:]:
        well, helped = train(heavy("layernorm", name), language, steps=10)
        assert absent(helped, "residual-growth")
        assert late(well) < late(ill)


@pytest.mark.parametrize("least", [1e-3, 1.0, 1e3])
def test_residual_growth_is_a_factor_whatever_the_size(least):
    def told(*sizes):
        late = {str(block): least * size for block, size in enumerate(sizes)}
        return [*residual_growth.find(SimpleNamespace(late=lambda what: late, facts={"blocks": [*late]}))]

    assert [finding.where for finding in told(1, 2, 4, 8)] == [("3",)]
    assert "2x a block" in told(1, 2, 4, 8)[0].evidence
    assert not told(1, 1.4, 2, 2.8)
    assert not told(1, 1.6, 2.56, 4.1), "additions alone may do so"
    assert not told(1, 4, 16)


def test_vanishing_gradients():
    def deep(**options):
        return mlp(8, gain=options.pop("gain", 1.0), **options)

    ill, seen = train(deep(function=nn.Sigmoid), points, make=SGD, lr=0.1, steps=20)
    finding = found(seen, "vanishing-gradient")
    assert finding.where == ("0",)
    assert names(finding) == ["batchnorm", "a function that does not shrink"]
    assert "for name, m in list(model.named_modules())" in finding.remedies[0].line  # one line for all of a kind
    for model in (deep(function=nn.Sigmoid, norm="batchnorm"), deep(gain=math.sqrt(2))):
        well, helped = train(model, points, make=SGD, lr=0.1, steps=20)
        assert absent(helped, "vanishing-gradient")
        assert late(well) < late(ill)


class Stage(nn.Module):
    """Another map, then a small branch that a learned number near zero scales, as in ConvNeXt."""

    def __init__(self, first, width=32):
        super().__init__()
        self.map_before = nn.Identity() if first else nn.Linear(width, width)
        self.branch = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.scale = nn.Parameter(torch.full((width,), 1e-6))
        for part in self.branch[::2]:
            nn.init.normal_(part.weight, std=0.01), nn.init.zeros_(part.bias)

    def forward(self, x):
        x = self.map_before(x)
        return x + self.scale * self.branch(x)


class Squashed(nn.Module):
    def __init__(self, first, width=32):
        super().__init__()
        self.linear, self.function = nn.Linear(width, width), nn.Sigmoid()

    def forward(self, x):
        return self.function(self.linear(x))


@pytest.mark.parametrize("make", [torch.optim.AdamW, SGD])
def test_a_gradient_that_comes_to_what_is_before_the_first_block_has_not_vanished(make):
    def trained(stage, depth):
        torch.manual_seed(0)
        stages = nn.Sequential(*(stage(number == 0) for number in range(depth)))
        return train(nn.Sequential(nn.Linear(8, 32), stages, nn.Linear(32, 2)), points, make=make, lr=1e-3, every=2)[1]

    healthy = trained(Stage, 4)
    assert vanishing_gradient.TRIAL.read(healthy.history(), None) > vanishing_gradient.RATIO
    assert absent(healthy, "vanishing-gradient")
    assert found(trained(Squashed, 7), "vanishing-gradient").where == ("1.0",)


class HeadFirst(nn.Module):
    """Its head is registered before its stages, its stem behind them."""

    def __init__(self, stage, depth, width=32):
        super().__init__()
        self.head = nn.Linear(width, 2)
        self.stages = nn.ModuleList(stage(number == 0) for number in range(depth))
        self.stem = nn.Linear(8, width)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(x)


def test_without_an_optimizer_what_is_before_the_first_block_is_what_is_called_before_it():
    torch.manual_seed(0)
    healthy, ill = HeadFirst(Stage, 4), HeadFirst(Squashed, 7)
    assert absent(watching.inspect(healthy, [points(0)]), "vanishing-gradient")
    with nk.watch(ill, every=1) as seen:
        for x, y in map(points, range(3)):
            F.cross_entropy(ill(x), y).backward()
    for looked in (watching.inspect(ill, [points(0)]), seen):
        [finding] = looked.diagnosis().of("vanishing-gradient")
        assert finding.where == ("stages.0",)


def test_gradient_spikes():
    def outliers(step):
        x, y = points(step)
        return x * (300 if step % 10 == 9 else 1), y

    def usual(losses):
        return sum(loss for step, loss in enumerate(losses) if step % 10 != 9)

    for make, rate, better in ((torch.optim.Adam, 0.02, nk.StableSPAM), (SGD, 0.05, nk.AGC)):
        ill, seen = train(mlp(), outliers, make=make, lr=rate, every=1, steps=40)
        finding = found(seen, "gradient-spikes")
        assert "of 35 samples" in finding.evidence
        assert names(finding) == ["stable-spam", "agc"]
        well, _ = train(mlp(), outliers, make=better, lr=rate, watched=False, steps=40)
        assert usual(well) < usual(ill)


def test_dead_units():
    def killed(norm=None):
        model = mlp(norm=norm)
        for part in model[:-1]:
            if isinstance(part, nn.Linear):
                part.bias.data -= 8
        return model

    ill, seen = train(killed(), points)
    finding = found(seen, "dead-units")
    assert finding.since == 1
    assert finding.evidence.startswith("100% of")
    assert names(finding) == ["batchnorm", "layernorm"]
    for norm in names(finding):
        well, helped = train(killed(norm), points)
        assert absent(helped, "dead-units")
        assert late(well) < late(ill)


def test_dead_units_behind_a_function_that_is_no_module():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 2)
            self.second.bias.data -= 9

        def forward(self, x):
            return self.third(torch.relu(self.second(torch.relu(self.first(x)))))

    _, seen = train(Plain(), points, steps=10)
    finding = found(seen, "dead-units")
    assert finding.where == ("third",)
    assert "of what goes into third is zero" in finding.evidence


@pytest.mark.parametrize("compiled", [False, True])
def test_empty_columns_of_data_are_no_dead_units(compiled):
    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other, self.top = nn.Linear(100, 8), nn.Linear(100, 8), nn.Linear(16, 2)

        def forward(self, x):
            x = F.one_hot((x[:, 0].abs() * 9).long(), 100).float()
            return self.top(torch.cat([self.one(x), self.other(x)], 1))

    model = Towers()
    if compiled:
        torch._dynamo.reset()
        model.compile(backend="eager")
    _, seen = train(model, points, steps=10)
    assert seen.notes == []
    assert seen.history().names("dead_inputs") == ["top"]
    assert absent(seen, "dead-units")


def test_saturated_squash():
    ill, seen = train(decoder(norm="dyt:alpha=20"), language)
    finding = found(seen, "saturated-squash")
    assert "norm" not in finding.where, "the last one"
    well, helped = train(decoder(norm="dyt:alpha=0.2"), language)
    assert absent(helped, "saturated-squash")
    assert late(well) < late(ill)


def test_a_squash_is_read_with_its_shift():
    module, x = nk.create("derf", 4, shift=0.25, alpha=0.75), torch.linspace(-2, 2, 4)
    torch.testing.assert_close(squash.function_of(module)(x), torch.erf(0.75 * x + 0.25))


def test_saturated_functions():
    ill, seen = train(mlp(function=nn.Tanh, gain=20.0), points)
    finding = found(seen, "saturated-function")
    assert set(finding.where) == {"1", "3", "5"}
    well, helped = train(mlp(function=nn.Tanh, gain=20.0, norm=names(finding)[0]), points)
    assert absent(helped, "saturated-function")
    assert late(well) < late(ill)


def test_entropy_collapse():
    def sharp(**options):
        model = decoder(**options)
        for layer in model.layers:
            layer.attention.query.weight.data *= 20
            layer.attention.key.weight.data *= 20
        return model

    ill, seen = train(sharp(), language)
    finding = found(seen, "entropy-collapse")
    assert finding.evidence.startswith("head ")
    entropy, largest = (seen.history().late(what)[finding.where[0]] for what in ("entropy", "logit"))
    assert finding.margin == pytest.approx(min(0.05 / max(entropy, 1e-9), largest / 50))
    bounded = sharp()
    for part in ("query", "key"):
        assert len(nk.weight.apply(bounded, "sigma-reparam", where=f"*{part}*", gamma_init=1.0).done) == 2
    assert names(finding) == ["qk-norm", "sigma-reparam", "qk-clip"]
    for model in (sharp(query_key_norm="head"), bounded):
        well, helped = train(model, language)
        assert absent(helped, "entropy-collapse")
        assert late(well) < late(ill)


def convnet():
    torch.manual_seed(0)
    parts = [
        part
        for inputs in (1, 16)
        for part in (nn.Conv2d(inputs, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    ]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))


def test_effective_steps():
    def grown(seen):
        size = seen.history().series("3.weight", "weight")
        return size[-1] / size[0]

    _, seen = train(convnet(), pictures, make=momentum, lr=1.0)
    finding = found(seen, "effective-step")
    assert set(finding.where) <= {"0.weight", "3.weight"}, "the last layer has no norm behind it"
    assert names(finding) == ["sgdp", "normalize-and-project"]
    _, projecting = train(convnet(), pictures, make=lambda p, lr: nk.SGDP(p, lr=lr, momentum=0.9), lr=1.0)
    model = convnet()
    optimizer = momentum(model.parameters(), 1.0)
    nk.weight.project(model, optimizer, "normalize-and-project")
    _, held = train(model, pictures, make=lambda p, lr: optimizer)
    assert grown(held) < grown(projecting) < 0.6 * grown(seen)
    assert absent(held, "effective-step")
    assert absent(projecting, "effective-step")


def test_effective_steps_of_adam():
    ill, seen = train(convnet(), pictures, make=torch.optim.Adam, lr=0.2)
    assert names(found(seen, "effective-step"))[0] == "adamp"
    well, helped = train(convnet(), pictures, make=nk.AdamP, lr=0.2)
    assert absent(helped, "effective-step")
    assert late(well) < late(ill)


def test_running_statistics():
    def loud(step):
        x, y = pictures(step)
        return 20 * x + 100, y

    model = convnet()
    for part in (model[1], model[4]):
        part.momentum = 0.001
    _, seen = train(model, loud, steps=70)
    finding = found(seen, "running-statistics")
    assert "part of the batch's" in finding.evidence
    ill = evaluated(model, loud)
    assert names(finding) == ["recalibrate", "groupnorm"]
    nk.recalibrate(model, [loud(step)[0] for step in range(10)])
    assert evaluated(model, loud) < ill
    other = convnet()
    nk.swap(other, {"batchnorm": "groupnorm:num_groups=4"})
    _, helped = train(other, loud, steps=70)
    assert absent(helped, "running-statistics")
    assert evaluated(other, loud) < ill


def test_small_batches():
    def few(step):
        return points(step, batch=4)

    model = mlp(norm="batchnorm")
    _, seen = train(model, few, steps=100, every=50)
    finding = found(seen, "small-batch")
    assert "of 4 values a channel, which is off by 71%" in finding.evidence
    assert names(finding) == ["layernorm", "groupnorm"]
    ill = evaluated(model, points)
    for norm in ("layernorm", "groupnorm:num_groups=4"):
        other = mlp(norm=norm)
        _, helped = train(other, few, steps=100, every=50)
        assert absent(helped, "small-batch")
        assert evaluated(other, points) < ill


@pytest.mark.parametrize("together, few", [(1, True), (4, False)])
def test_batch_statistics_of_several_processes_are_of_the_values_of_all(together, few, monkeypatch):
    monkeypatch.setattr(running, "processes", lambda group: together)
    model = nn.Sequential(nn.Linear(8, 32), nk.SyncBatchNorm(32), nn.ReLU(), nn.Linear(32, 2))
    _, seen = train(model, lambda step: points(step, 6))
    assert absent(seen, "small-batch") != few
    assert set(seen.history().series("1", "count")) == {6}, "whose noise the batch's own mean has"


@pytest.mark.parametrize(
    "norm, batch, suffers",
    [
        (lambda: nn.BatchNorm2d(8), 1, True),
        (lambda: nk.BatchNorm(8), 1, True),
        (lambda: nn.BatchNorm2d(8), 2, False),
        (lambda: nn.InstanceNorm2d(8, track_running_stats=True), 1, False),
        (lambda: nn.BatchNorm2d(8).eval(), 1, False),
    ],
)
def test_batch_statistics_of_one_picture(norm, batch, suffers):
    model = nn.Sequential(nn.Conv2d(1, 8, 3), norm(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    _, seen = train(model, lambda step: pictures(step, batch))
    if suffers:
        finding = found(seen, "small-batch")
        assert finding.evidence == "1 takes its statistics of one sample, 36 values a channel."
        assert names(finding) == ["groupnorm"]
    else:
        assert absent(seen, "small-batch")


def test_large_updates():
    ill, seen = train(decoder(), language, lr=0.3)
    finding = found(seen, "large-updates")
    factor = float(finding.remedies[0].line.rpartition(" ")[2])
    well, helped = train(decoder(), language, lr=0.3 / factor)
    assert absent(helped, "large-updates")
    assert late(well) < late(ill)


@pytest.mark.parametrize(
    "losses, suffers",
    [
        ([5.4, 4.53, 3.33, 2.65, 2.74, 2.44, 2.67, 2.44, 2.37, 2.48, 2.51, 2.34], False),
        ([4.17, 3.86, 3.4, 3.3, 3.1, 2.95, 2.93, 2.95, 2.86, 2.81, 2.78, 2.78], False),
        ([3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.5, 2.4, 2.4, 2.4, 2.4, 2.4], False),
        ([2.34, 2.43, 2.58, 2.51, 2.57, 2.42, 2.49, 2.44, 2.4, 2.49, 2.53, 2.45], True),
        ([5.4, 4.22, 3.99, 3.67, 3.74, 3.62, 3.63, 3.63, 3.37, 3.43, 3.34, 3.58], True),
    ],
)
def test_long_steps_of_a_language_model_whose_loss_falls_well_are_no_finding(losses, suffers):
    """Losses of decoders of 64 words, where guessing gives 4.16 and the language itself leaves 2.2."""
    store, columns = Store(), [("layer.weight", "update"), (LOSS, "loss"), (LOSS, "classes")]
    for at, loss in enumerate(losses):
        store.add(1 + 10 * at, columns, [MEAN] * 3, torch.tensor([0.12, loss, 64]))
    history = History(store, {"shapes": {"layer.weight": [64, 64]}})
    assert bool([*large_updates.find(history)]) is suffers


@pytest.mark.parametrize("entry, suffers", [(3e-4, True), (3e-5, False)])
def test_a_weight_that_is_drawn_small_does_not_start_at_zero(entry, suffers):
    """Its first step is longer than it is."""
    store, columns = Store(), [("layer.weight", "update"), ("layer.weight", "weight"), (LOSS, "loss")]
    for at, update in enumerate((3.0, 0.5, 0.3, 0.2)):
        store.add(1 + at, columns, [MEAN] * 3, torch.tensor([update, 64 * entry, 2.0]))
    history = History(store, {"shapes": {"layer.weight": [64, 64]}})
    assert bool([*large_updates.find(history)]) is suffers


EARLY = {"peak": 0.4, "late": 0.1, "jump": 1.8, "end": 0.5, "first": 1.0, "optimizer": "AdamW", "samples": 8}


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"peak": 0.09, "late": 0.02},
        {"late": 0.25},
        {"jump": 1.4},
        {"end": 0.7},
        {"first": 0.1},
        {"optimizer": "SGD"},
        {"samples": 7},
    ],
    ids=str,
)
def test_a_warm_up_is_asked_for_where_all_of_its_signs_are_there(other):
    """First steps of ``peak`` of a matrix and later ones of ``late``; losses and the first rate as shares."""
    case = {**EARLY, **other}
    store = Store()
    columns = [("layer.weight", "update"), (LOSS, "loss"), (LOSS, "loss_peak"), ("group 0", "lr")]
    for at in range(case["samples"]):
        loss = 2.0 if at == 0 else 2.0 * case["end"]
        row = [case["late" if at else "peak"], loss, loss * case["jump"], 0.1 * (1 if at else case["first"])]
        store.add(1 + at, columns, [MEAN] * 4, torch.tensor(row))
    facts = {"shapes": {"layer.weight": [8, 8]}, "group_of": {"layer.weight": 0}}
    history = History(store, {**facts, "groups": [{"optimizer": case["optimizer"]}]})
    assert bool([*no_warm_up.find(history)]) is not bool(other)


class Gated(nn.Module):
    """A branch whose gate starts at zero, before a head that does: adaLN-Zero, as diffusion transformers have it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.branch, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        for layer in (self.gate, self.head):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        return self.head(x + self.gate(x) * self.branch(x).tanh())


def test_what_starts_at_zero_and_moves_from_the_second_step_on_may_grow():
    _, seen = train(Gated(), points, lr=1e-3, steps=40)
    updates = seen.history().series("gate.weight", "update")
    assert updates[0] == 0
    assert updates[1] > large_updates.RATIO
    assert large_updates.ratios(seen.history())["gate.weight"] == 0
    assert absent(seen, "large-updates")


@pytest.mark.parametrize("rate, dtype", [(1e-12, torch.float32), (1e-5, torch.bfloat16)])
def test_stalled_weights(rate, dtype):
    def given(step):
        x, y = points(step)
        return x.to(dtype), y

    ill, seen = train(mlp().to(dtype), given, lr=rate, make=SGD)
    finding = found(seen, "stalled-weights")
    assert names(finding) == ["a higher learning rate", "float32 weights"][: 1 + (dtype == torch.bfloat16)]
    if dtype == torch.float32:
        well, helped = train(mlp(), points, lr=float(finding.remedies[0].line.rpartition("= ")[2]), make=SGD, steps=60)
        assert late(well) < late(ill)
    else:
        _, helped = train(mlp(), points, lr=rate, make=SGD)
    assert absent(helped, "stalled-weights")


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("rate", [0.1, 1e-12])
def test_a_table_whose_rows_are_rare_moves_with_the_rest(sparse, rate):
    table = nn.Embedding(20_000, 1, sparse=sparse)
    model = nn.Sequential(table, nn.Flatten(), nn.Linear(8, 32), nn.Linear(32, 2))
    _, seen = train(model, lambda step: (torch.randint(1, 20_000, (8, 8)), points(step)[1][:8]), lr=rate, make=SGD)
    assert [f.where for f in seen.diagnosis().of("stalled-weights")] == [("2.weight", "3.weight")] * (rate < 1e-9)


def test_weights_whose_rate_has_come_to_0_are_not_stalled():
    _, seen = train(mlp(), points, lr=0.0, make=SGD)
    assert set(seen.history().late("update").values()) == {0.0}
    assert absent(seen, "stalled-weights")


def test_steps_that_are_lost_in_rounding():
    """In bfloat16 most entries stay where they are, and the loss behind that of float32; at a higher rate they move."""

    def run(dtype, lr=3e-4):
        return train(decoder(std=0.2, norm="rmsnorm").to(dtype), language, lr=lr, steps=60, every=10)

    (ill, seen), (well, helped) = run(torch.bfloat16), run(torch.float32)
    finding = found(seen, "stalled-weights")
    assert finding.title == "steps are lost in rounding"
    assert names(finding) == ["float32 weights"]
    assert helped.history().names("still") == []
    assert absent(helped, "stalled-weights")
    assert late(well) < late(ill)
    assert absent(run(torch.bfloat16, 3e-3)[1], "stalled-weights")


def test_entries_that_a_step_leaves_as_they_are_are_counted_among_those_with_a_gradient():
    layer = nn.Linear(4, 1, bias=False).bfloat16()
    layer.weight.data = torch.tensor([[1.0, 1.0, 1e-3, 1.0]], dtype=torch.bfloat16)
    optimizer = SGD(layer.parameters(), lr=1e-3)
    with nk.watch(layer, optimizer, every=1) as seen:
        layer(torch.tensor([[1.0, 1.0, 1.0, 0.0]], dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
    assert seen.history().series("weight", "still") == pytest.approx([2 / 3])


@pytest.mark.parametrize(
    "module, rounds", [("torch.optim.adamw", True), ("normkit.gradient", True), ("torchao", False)]
)
def test_what_an_optimizer_keeps_beside_weights_is_not_lost(module, rounds):
    optimizer = type("Own", (SGD,), {"__module__": f"{module}.own"})([nn.Parameter(torch.ones(1))], lr=1.0)
    assert parameters.rounds(optimizer) is rounds


def test_a_weight_that_its_optimizer_no_longer_holds_needs_no_lower_rate():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = SGD(model.parameters(), lr=0.05)
    with nk.watch(model, optimizer, every=1) as seen:
        for step in range(20):
            if step == 4:
                model[0] = nn.Linear(4, 8)
            optimizer.zero_grad()
            (model(torch.ones(3, 4)) - step % 3).square().mean().backward()
            optimizer.step()
            model[0].zero_grad()
    finding = found(seen, "stalled-weights")
    assert finding.where == ("0.weight",)
    assert "a higher learning rate" not in names(finding)


def test_no_gradient():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(8, 2), nn.Linear(8, 2)

        def forward(self, x):
            return self.used(x)

    _, seen = train(Half(), points, steps=10)
    unused = found(seen, "no-gradient")
    assert unused.where == ("unused.weight", "unused.bias")
    many = Half()
    many.unused = nn.Sequential(*(nn.Linear(2, 2) for _ in range(3)))
    _, seen = train(many, points, steps=10)
    assert found(seen, "no-gradient").evidence.endswith(
        ": unused.0.weight, unused.0.bias, unused.1.weight, unused.1.bias and 2 more."
    )
    others = [Finding(rule, 4.0, ("0",), "", rule=rule) for rule in ("dead-units", "router-collapse")]
    assert [by_cause([unused, other])[-1].cause for other in others] == ["", "router-collapse"]
    model = mlp()
    model[0].unused = nn.Linear(3, 3)
    model[0].bias.data -= 90
    _, seen = train(model, points, steps=10)
    assert [(f.rule, f.cause, f.where[-1]) for f in seen.diagnosis()[1:]] == [
        ("no-gradient", "dead-units", "2.weight"),
        ("no-gradient", "", "0.unused.bias"),
    ]


def test_a_sparse_gradient_is_one():
    model = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(32, 2))
    x = torch.arange(20).view(5, 4)
    _, seen = train(model, lambda step: (x, x[:, 0] % 2), steps=10, make=SGD)
    assert absent(seen, "no-gradient")
    assert (seen.history().series("0.weight", "gradient") > 0).all()


def test_left_out():
    model = mlp()
    optimizer = SGD(model[0].parameters(), lr=0.1)
    ill, seen = train(model, points, make=lambda p, lr: optimizer)
    assert "6 of 8" in found(seen, "left-out").evidence
    optimizer.add_param_group({"params": list(model[1:].parameters())})
    well, helped = train(model, points, make=lambda p, lr: optimizer)
    assert absent(helped, "left-out")
    assert late(well) < late(ill)


def language_model():
    return nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.Linear(16, 50))


def test_misplaced_matrices():
    def tokens(step):
        x = torch.randint(50, (64,), generator=torch.Generator().manual_seed(step))
        return x, (x + 1) % 50

    def by_shape(model):
        return nk.Muon([p for p in model.parameters() if p.dim() > 1], lr=0.02, ns_dtype=None)

    model = language_model()
    _, seen = train(model, tokens, steps=10, make=lambda p, lr: by_shape(model))
    finding = found(seen, "misplaced-matrices")
    assert finding.where == ("0.weight", "4.weight")
    assert "2 of 4" in finding.evidence
    groups = nk.param_groups(model, "muon")
    _, seen = train(model, tokens, steps=10, make=lambda p, lr: nk.Muon(groups, ns_dtype=None))
    assert absent(seen, "misplaced-matrices")
    _, seen = train(model, tokens, steps=10)
    assert absent(seen, "misplaced-matrices")


def test_depthwise_kernels_are_no_matrices():
    def model():
        torch.manual_seed(0)
        first, depthwise = (nn.Conv2d(n, 8, (3, 1), padding=(1, 0), groups=n) for n in (1, 8))
        ends = nn.Unflatten(1, (1, 8, 1)), nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
        return nn.Sequential(ends[0], first, nn.ReLU(), depthwise, nn.ReLU(), *ends[1])

    def by_shape(parameters, lr):
        return nk.Muon([p for p in parameters if p.dim() > 2], lr=0.02, ns_dtype=None)

    _, seen = train(model(), points, steps=10, make=by_shape)
    finding = found(seen, "misplaced-matrices")
    assert finding.where == ("3.weight",)
    assert "depthwise kernels" in finding.evidence
    own = model()
    groups = nk.param_groups(own, "muon")
    assert [[tuple(p.shape) for p in group["params"]] for group in groups if group["use_muon"]] == [[(8, 1, 3, 1)]]
    assert own[3].weight is next(p for group in groups[1:] for p in group["params"] if p.shape == (8, 1, 3, 1))
    assert nk.param_groups(own, "adamw").roles[2].decays
    _, seen = train(own, points, steps=10, make=lambda ps, lr: nk.Muon(groups, ns_dtype=None))
    assert absent(seen, "misplaced-matrices")


def test_clipped_steps():
    class Clipped(nk.Muon):
        """Shortens the directions of all matrices to a length together."""

        def orthogonal(self, params, grads, states, group):
            us = super().orthogonal(params, grads, states, group)
            return [u * (1.0 / nn.utils.get_total_norm(us)).clamp(max=1) for u in us]

    def made(method):
        def make(parameters, lr):
            return method([p for p in parameters if p.dim() == 2], lr=0.02, ns_dtype=None)

        return make

    _, seen = train(mlp(), points, make=made(Clipped))
    assert "all alike" in found(seen, "clipped-steps").evidence
    _, seen = train(mlp(), points, make=made(nk.Muon))
    assert absent(seen, "clipped-steps")


@pytest.mark.parametrize("library", [torch.optim, nk])
def test_cold_momentum(library):
    class Forgets(library.Muon):
        """As where a loop loads an empty state, or builds its optimizer, at each step."""

        def step(self, closure=None):
            self.state.clear()
            return super().step(closure)

    def make(method):
        return lambda parameters, lr: method([p for p in parameters if p.dim() == 2], lr=0.02, momentum=0.9)

    _, seen = train(mlp(), points, make=make(Forgets), every=3)
    finding = found(seen, "cold-momentum")
    assert finding.where[0] == "0.weight"
    _, helped = train(mlp(), points, make=make(library.Muon), every=3)
    assert absent(helped, "cold-momentum")
    carried = helped.history().series("0.weight", "carried")
    assert carried[0] == pytest.approx(0, abs=0.01)
    assert min(carried[1:]) > 0.3


def test_a_momentum_is_compared_with_no_infinite_gradient_of_a_step_that_a_scaler_left_out():
    model = nn.Linear(8, 8, bias=False)
    optimizer = nk.Muon([model.weight], lr=0.01)
    model(torch.randn(3, 8)).sum().backward()
    optimizer.step()
    model.weight.grad[0, 0] = math.inf
    [(_, _, shares)] = parameters.carried(model, [optimizer])
    assert shares == MISSING


def test_a_momentum_of_one_gradient_again_and_again_is_not_cold():
    def make(parameters, lr):
        return nk.Muon([p for p in parameters if p.dim() == 2], lr=1e-6)

    _, seen = train(mlp(), lambda step: points(0), every=3, make=make)
    assert absent(seen, "cold-momentum")


def test_idle_blocks():
    def loud(**options):
        model = decoder(**options)
        model.embedding.weight.data *= 1000
        return model

    ill, seen = train(loud(), language)
    finding = found(seen, "idle-blocks")
    assert len(finding.where) == 2
    assert finding.since == 1
    well, helped = train(loud(embedding_norm=True), language)
    assert absent(helped, "idle-blocks")
    assert late(well) < late(ill)


def idle_of(*cosines, step=2):
    store = Store()
    for place, cosine in zip((1, step), cosines, strict=True):
        store.add(place, [("0", "cosine"), ("0", "input_rms")], [MEAN] * 2, torch.tensor([cosine, 3.0]))
    return list(idle_blocks.find(History(store, {"groups": ["a"], "classes": {"0": "Linear"}})))


def test_running_statistics_are_judged_by_steps_at_which_they_were_numbers():
    """As where the data hold NaN from the second sample on, and the average has hardly left its start."""

    def findings(*ratios):
        store = Store()
        for place, ratio in enumerate(ratios):
            store.add(1 + 30 * place, [("0", "variance_ratio")], [MEAN], torch.tensor([ratio]))
        return list(running_statistics.find(History(store, {"momenta": {"0": 0.1}, "classes": {}, "widths": {}})))

    assert not findings(20.0, math.nan)
    assert findings(20.0, 20.0)


def test_a_model_without_an_embedding_gets_advice_against_idle_blocks_that_is_named_and_not_run():
    [finding] = idle_of(0.9999, 0.9999)
    assert names(finding) == ["a norm before the first block"]
    assert [remedy.runs for remedy in finding.remedies] == [False]


def test_a_block_that_began_as_the_identity_has_time_to_leave_it():
    """As the blocks of a ResNet do, whose last gain begins at 0."""
    assert not idle_of(1.0, 0.9999)
    assert idle_of(1.0, 1.0)
    assert idle_of(1.0, 0.9999, step=2000)


def test_half_headroom():
    def loud():
        model = decoder()
        model.embedding.weight.data[:, 3] += 10000
        return model

    _, seen = train(loud().half(), language, steps=5, make=SGD, lr=1e-6)
    assert "channel 3: float16 ends at 65504" in found(seen, "half-headroom").evidence
    _, helped = train(loud().bfloat16(), language, steps=5, make=SGD, lr=1e-6)
    assert absent(helped, "half-headroom")


def test_an_eighth_of_what_float16_holds_is_room_enough():
    def since(*values):
        store = Store()
        for step, value in enumerate(values, 1):
            store.add(step, [("0", "largest"), ("0", "channel")], [MEAN] * 2, torch.tensor([value, 5.0]))
        return [finding.since for finding in half_headroom.find(History(store, {"dtypes": {"0": "float16"}}))]

    assert since(8188.0, 8188.0) == []
    assert since(8188.0, 8192.0) == [2]


@pytest.mark.parametrize("size, worst", [(20.0, "2.weight"), (0.001, "4.weight")])
def test_of_matrices_that_are_drawn_too_large_or_too_small_the_worst_comes_first(size, worst):
    model = mlp()
    for at, factor in {0: 2.0, 2: 4.0, 4: 1.0, 6: 3.0}.items():
        nn.init.constant_(model[at].weight, size * factor * model[at].in_features ** -0.5)
    _, seen = train(model, points, steps=1, make=SGD, lr=1e-9)
    finding = found(seen, "initial-scale")
    assert finding.where[0] == worst
    assert f"multiply the size of what they are fed by {2.5 * size:g} or" in finding.evidence


def test_lost_gains():
    def decaying(model, gains):
        vectors = [p for p in model.parameters() if p.dim() == 1]
        matrices = [p for p in model.parameters() if p.dim() > 1]
        groups = [{"params": matrices}, {"params": vectors, "weight_decay": gains}]
        return torch.optim.AdamW(groups, lr=3e-3, weight_decay=0.1)

    def run(gains, norm="layernorm"):
        model = decoder(norm=norm)
        return train(model, language, every=12, steps=36, make=lambda p, lr: decaying(model, gains))

    ill, seen = run(25.0)
    finding = found(seen, "lost-gains")
    assert names(finding) == ["no decay of gains", "a gain that decays to one"]
    for well, helped in (run(0.0), run(25.0, "layernorm:offset=1.0")):
        assert absent(helped, "lost-gains")
        assert late(well) < late(ill)


@pytest.mark.parametrize(
    "decay, mixed, optimizer, line",
    [
        (0.1, True, "Lion", "make Lion with gains in a group of their own, of weight_decay=0"),
        (0.1, True, "SGD", "optimizer = torch.optim.SGD(nk.param_groups(model, weight_decay=0.1), lr=0.01)"),
        (0.1, False, "Lion", 'group["weight_decay"] *= any('),
        (0.0, False, "Scion", None),
    ],
)
def test_gains_that_are_lost_keep_their_optimizer_and_what_has_no_decay_gets_no_line(decay, mixed, optimizer, line):
    store = Store()
    for at in range(8):
        row = torch.tensor([4 * 0.7**at, 0.001 if at == 0 else 0.01])
        store.add(1 + 400 * at, [("norm.weight", "weight"), ("group 0", "lr")], [MEAN] * 2, row)
    groups = [{"optimizer": optimizer, "lr": 0.001, "weight_decay": decay}] * 2
    facts = {"kinds": {"norm": "norm"}, "shapes": {"norm.weight": [16], "layer.weight": [16, 16]}, "groups": groups}
    history = History(store, {**facts, "group_of": {"norm.weight": 0, "layer.weight": 0 if mixed else 1}})
    [finding] = lost_gains.find(history)
    assert (line in finding.remedies[0].line) if line else not finding.remedies
    assert all(remedy.runs is (not remedy.line.startswith("make")) for remedy in finding.remedies[:1])


@pytest.mark.parametrize(
    "optimizer, rate, by_decay",
    [("AdamW", 0.03, False), ("AdamW", 6.0, True), ("SGD", 0.7, True), ("Adam", 0.03, False), ("Adam", 0.3, True)],
)
def test_gains_are_lost_by_decay_only_where_it_accounts_for_half_of_the_fall(optimizer, rate, by_decay):
    """The fall is by 0.5**7; of Adam, decay is a hundredth of the gradient, whose size its steps do not have."""
    store = Store()
    columns = [("norm.weight", "weight"), ("norm.weight", "gradient"), ("group 0", "lr")]
    for at in range(8):
        store.add(1 + 10 * at, columns, [MEAN] * 3, torch.tensor([4 * 0.5**at, 4 * 0.5**at, rate]))
    group = {"optimizer": optimizer, "lr": rate, "weight_decay": 0.01, "momentum": 0.9}
    facts = {"kinds": {"norm": "norm"}, "shapes": {"norm.weight": [16]}, "groups": [group]}
    [finding] = lost_gains.find(History(store, {**facts, "group_of": {"norm.weight": 0}}))
    assert bool(finding.remedies) is by_decay
    large = Finding("steps are too large", 4.0, ("norm.weight",), "", since=1, rule="large-updates")
    ranked = by_cause([dataclasses.replace(finding, rule="lost-gains"), large])
    assert [f.rule for f in ranked] == ["lost-gains", "large-updates"][:: 1 if by_decay else -1]
    assert ranked[-1].cause == ("" if by_decay else "large-updates")
    [alone] = by_cause([dataclasses.replace(finding, rule="lost-gains")])
    assert alone.cause == ""


@pytest.mark.parametrize("name", ["AdamW", "Adam", "RAdam"])
def test_of_a_warm_up_the_full_rate_is_that_of_decay(name):
    model = nn.Sequential(nn.Linear(8, 32), nn.RMSNorm(32), nn.Linear(32, 4))
    apart = {} if name == "AdamW" else {"decoupled_weight_decay": True}
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.03, weight_decay=1.0, **apart)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 10))
    chance = torch.Generator().manual_seed(0)
    with nk.watch(model, optimizer, every=10) as seen:
        for _ in range(120):
            optimizer.zero_grad()
            x, y = torch.randn(16, 8, generator=chance), torch.randn(16, 4, generator=chance)
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            schedule.step()
    decay = found(seen, "strong-decay")
    assert "a decay of 1 at a rate of 0.03 takes 0.03 of a weight at each step" in decay.evidence
    assert decay.remedies[0].line.endswith('["weight_decay"] = 0.00333')
    line = found(seen, "lost-gains").remedies[0].line
    assert line.startswith("make RAdam with" if name == "RAdam" else "optimizer = torch.optim.AdamW(")
    assert name == "RAdam" or line.endswith("weight_decay=1), lr=0.03)")


def test_of_gains_that_are_lost_the_smallest_comes_first():
    store = Store()
    columns = [(f"{name}.weight", "weight") for name in ("a", "b", "c")]
    for step in range(1, 9):
        store.add(step, columns, [MEAN] * 3, torch.tensor([4 * 0.7**step, 4 * 0.5**step, 8 * 0.6**step]))
    facts = {"kinds": dict.fromkeys("abc", "norm"), "shapes": {name: [16] for name, _ in columns}}
    facts |= {"groups": [], "group_of": {}}
    [finding] = lost_gains.find(History(store, facts))
    assert finding.where == ("b.weight", "c.weight", "a.weight")
    assert "the gain of b fell from 0.5 to 0.00391; 3 norms" in finding.evidence


def test_eps_dominates():
    def faint(step):
        x, y = points(step)
        return (1e-4 if step > 8 else 1.0) * x, y

    def normed(eps):
        return nn.Sequential(nk.create("layernorm", 8, eps=eps), mlp())

    ill, seen = train(normed(1e-5), faint)
    finding = found(seen, "eps-dominates")
    assert "its eps of 1e-05" in finding.evidence
    assert 8 < finding.since <= 14
    well, helped = train(normed(1e-12), faint)
    assert absent(helped, "eps-dominates")
    assert late(well) < late(ill)


def test_an_eps_comes_before_the_growth_of_the_stream_that_follows_from_it():
    def measured(eps):
        model = decoder(depth=4, std=0.05, norm="rmsnorm")
        for module in model.modules():
            if hasattr(module, "eps"):
                module.eps = eps
        return train(model, language, steps=60)[1].diagnosis()

    eps, growth = measured(10.0)[:2]
    assert (eps.rule, growth.rule, growth.cause) == ("eps-dominates", "residual-growth", "eps-dominates")
    assert not measured(1e-6).of("residual-growth")


class Mixer(nn.Module):
    """Attention of torch's own, with or without a residual path."""

    def __init__(self, residual):
        super().__init__()
        torch.manual_seed(0)
        self.residual = residual
        self.embedding = nn.Embedding(16, 32)
        self.layers = nn.ModuleList(nn.MultiheadAttention(32, 4, batch_first=True) for _ in range(4))
        self.output = nn.Linear(32, 16)

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            y = F.layer_norm(x, (32,))
            y = layer(y, y, y, need_weights=False)[0]
            x = x + y if self.residual else y
        return self.output(x)


@pytest.mark.parametrize("cosine, rules", [(0.8, ["labels-apart", "tokens-alike"]), (0.1, ["tokens-alike"])])
def test_tokens_alike_beside_a_residual_path_follow_from_labels_that_teach_nothing(cosine, rules):
    store, words = Store(), {"alike": 0.995, "rank": 1.1, "cosine": cosine, "entropy": 2.0}
    for step in (1, 60, 120):
        store.add(step, [("b.2", what) for what in words], [MEAN] * 4, torch.tensor([*words.values()]))
    [alike] = tokens_alike.find(History(store, {}))
    labels = Finding("labels do not follow from the inputs", 2.9, (LOSS,), "", rule="labels-apart", certainty="likely")
    order = by_cause([dataclasses.replace(alike, rule="tokens-alike", certainty="certain"), labels])
    assert [one.rule for one in order][: len(rules)] == rules
    assert names(alike) == ([] if order[1].cause else ["a residual path"])
    assert bool(order[1].cause) == (cosine == 0.8)


def test_tokens_alike():
    ill, seen = train(Mixer(False), language)
    assert found(seen, "tokens-alike").where[-1] == "layers.3"
    well, helped = train(Mixer(True), language)
    assert absent(helped, "tokens-alike")
    assert late(well) < late(ill)


def test_a_trial_of_another_start_measures_the_last_block_over_the_first():
    series = {"blocks.0": 2.0, "blocks.1": math.nan, "blocks.2": 6.0}
    history = SimpleNamespace(
        facts={"blocks": [*series]}, names=lambda what: [*series], series=lambda name, what: [1.0, series[name]]
    )
    assert initial_scale._by_depth(history) == 3.0
    history.facts = {"blocks": ["blocks.0"]}
    assert math.isnan(initial_scale._by_depth(history))


def test_massive_activations():
    model = decoder(dim=512)
    with torch.no_grad():
        model.layers[0].feedforward.down.weight[7] *= 3000
    _, seen = train(model, language, steps=2, every=2)
    finding = found(seen, "massive-activations")
    assert "in channel 7" in finding.evidence
    assert finding.remedies == ()


@pytest.mark.parametrize("rule, measure, least", [(stalled_weights, "update", 1e-7), (small_batch, "count", 10.0)])
def test_what_is_just_enough_is_no_finding(rule, measure, least):
    def told(value):
        late = {"gradient": {"w": 1.0}, measure: {"w": value}}
        facts, rates = {"shapes": {"w": [2, 3]}}, np.array([0.1])
        given = {
            "names": lambda _: [],
            "of": lambda _: {},
            "facts": facts,
            "steps": [1, 2],
            "late": lambda what: late.get(what, {}),
            "rates": lambda _: rates,
            "since": lambda *_: 1,
        }
        return list(rule.find(SimpleNamespace(**given)))

    assert told(0.9 * least)
    assert not told(least)


def without_zero_grad(model, batches, passes=1, most=math.inf, steps=30):
    optimizer = SGD(model.parameters(), lr=1e-3)
    with nk.watch(model, optimizer, every=6) as seen:
        for step in range(steps):
            for part in range(passes):
                x, y = batches(passes * step + part)
                F.cross_entropy(model(x), y).backward()
            if most < math.inf:
                nn.utils.clip_grad_norm_(model.parameters(), most)
            optimizer.step()
    return seen


@pytest.mark.parametrize("passes, most", [(1, math.inf), (2, math.inf), (1, 0.01)])
def test_gradients_that_nothing_sets_to_zero(passes, most):
    finding = found_anywhere(without_zero_grad(mlp(), points, passes, most), "kept-gradients")
    assert "zero_grad" in finding.remedies[0].line


def by_data(parameters, loss):
    for p in parameters:
        if p.grad is not None:
            p.grad.data.zero_()
    loss.backward()


def by_hand(parameters, loss):
    for p, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        p.grad = slope if p.grad is None else p.grad.copy_(slope)


def in_place(parameters, loss):
    for p in parameters:
        if p.grad is not None:
            p.grad.zero_()
    loss.backward()


@pytest.mark.parametrize("backward", [by_data, by_hand, in_place])
def test_gradients_that_begin_anew_are_no_kept_ones(backward):
    model = mlp()
    parameters = [*model.parameters()]
    optimizer = SGD(parameters, lr=1e-3)
    with nk.watch(model, optimizer, every=6) as seen:
        for step in range(30):
            x, y = points(step)
            backward(parameters, F.cross_entropy(model(x), y))
            optimizer.step()
    assert absent(seen, "kept-gradients")
    assert all(not p._backward_hooks and not p._post_accumulate_grad_hooks for p in parameters)


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_of_several_passes_are_no_kept_ones(to_none):
    model = mlp()
    optimizer = SGD(model.parameters(), lr=1e-3)
    with nk.watch(model, optimizer, every=6) as seen:
        for step in range(60):
            x, y = points(step)
            F.cross_entropy(model(x), y).backward()
            if step % 2:
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
    assert absent(seen, "kept-gradients")


def test_the_gradient_of_what_no_optimizer_has_is_kept_and_means_nothing():
    model = mlp()
    smallest = min(model.parameters(), key=torch.Tensor.numel)
    optimizer = SGD([p for p in model.parameters() if p is not smallest], lr=1e-3)
    with nk.watch(model, optimizer, every=6) as seen:
        for step in range(30):
            x, y = points(step)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert absent(seen, "kept-gradients")


def found_anywhere(seen, rule):
    """The one finding of a rule, which comes before all others."""
    [finding] = seen.diagnosis().of(rule)
    assert seen.diagnosis()[0].rule == rule
    run_lines(finding, seen)
    return finding


def test_a_norm_whose_gain_stays_zero_comes_before_the_units_that_it_kills():
    model = mlp(norm="layernorm")
    nn.init.zeros_(model[4].weight)  # and the shift is zero too: no gradient comes through the ReLU behind
    _, seen = train(model, points, steps=30)
    assert found_anywhere(seen, "zero-output").where == ("4",)
    assert seen.diagnosis().of("dead-units")[0].cause == "zero-output"


def test_a_gain_that_starts_at_zero_and_moves_is_no_finding():
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
            nn.init.zeros_(self.norm.weight)

        def forward(self, x):
            return x + self.norm(self.layer(x))

    _, seen = train(nn.Sequential(Branch(), Branch(), nn.Linear(8, 2)), points, steps=30)
    assert absent(seen, "zero-output")


def test_one_batch_that_is_far_larger_is_named_with_its_step():
    def batches(step):
        x, y = points(step)
        return (x * 1e5 if step == 16 else x), y

    _, seen = train(mlp(), batches, steps=40, make=SGD, lr=0.1)
    assert "batch of step 17 " in found_anywhere(seen, "outlying-batch").evidence


@pytest.mark.parametrize("since, named", [(16, False), (17, True), (18, True), (None, True)])
def test_a_large_batch_is_named_for_what_begins_with_it_or_later(since, named, monkeypatch):
    effect = SimpleNamespace(find=lambda history: [SimpleNamespace(since=since, title="the loss is not a number")])
    monkeypatch.setattr(outlying_batch, "EFFECTS", (effect,))
    readings = {"jump": np.array([1.0, 1e4]), "jump_step": np.array([3.0, 17.0])}
    history = SimpleNamespace(series=lambda where, what: readings[what])
    assert [finding.since for finding in outlying_batch.find(history)] == [17] * named


def test_a_decay_that_takes_all_weights_is_named_before_what_it_does():
    def decayed(parameters, lr):
        return SGD(parameters, lr=lr, weight_decay=10.0)

    _, seen = train(mlp(), points, steps=60, make=decayed, lr=0.03)
    found_anywhere(seen, "strong-decay")


def test_the_large_feature_of_a_table_is_named_and_not_all_of_it_divided():
    def batches(step):
        x, y = points(step)
        return torch.cat([x[:, :5], 1e5 * x[:, 5:6].abs(), x[:, 6:]], 1), y

    _, seen = train(mlp(), batches, steps=30)
    finding = found_anywhere(seen, "data-scale")
    assert "feature 5 " in finding.evidence
    assert "x.mean(0)" in finding.remedies[0].line


def test_only_a_norm_before_the_first_layer_takes_away_the_scale_of_data():
    def batches(step):
        x, y = points(step)
        return 50 + x, y

    behind, before = mlp(norm="layernorm"), nn.Sequential(nn.BatchNorm1d(8), *mlp(norm="layernorm"))
    _, seen = train(behind, batches, steps=10)
    assert "first layer is drawn for 0 and 1" in found(seen, "data-scale").evidence
    _, seen = train(before, batches, steps=10)
    assert absent(seen, "data-scale")


class Within(nn.Module):
    """A model that brings its data to size one in its forward."""

    def __init__(self):
        super().__init__()
        self.inner = mlp()

    def forward(self, x):
        return self.inner((x - 500) / 100)


class Standardized(nn.Module):
    def forward(self, x):
        return (x - 500) / 100


class Patches(nn.Module):
    """Patches that overlap: more numbers than the model is fed."""

    def forward(self, x):
        return ((x - 500) / 100).unfold(1, 4, 2).flatten(1)


@pytest.mark.parametrize(
    "make",
    [Within, lambda: nn.Sequential(Standardized(), mlp()), lambda: nn.Sequential(Patches(), mlp(inputs=12))],
)
def test_data_that_the_model_itself_brings_to_size_one_are_no_finding(make):
    def batches(step):
        x, y = points(step)
        return 500 + 100 * x, y

    _, seen = train(make(), batches, steps=10)
    assert seen.history().series(DATA, "data_mean")[0] == pytest.approx(500, rel=0.05)
    assert seen.history().series(DATA, "data_fed")[0] == pytest.approx(1, rel=0.1)
    assert absent(seen, "data-scale")


def test_overlapping_patches_of_data_that_nothing_normalizes_are_a_finding():
    model = nn.Sequential(nn.Unflatten(1, (1, 1, 8)), nn.Unfold((1, 4), stride=2), nn.Flatten(), mlp(inputs=12))
    _, seen = train(model, lambda step: (500 + 100 * points(step)[0], points(step)[1]), steps=10)
    assert found(seen, "data-scale")


def test_samples_that_are_all_the_same():
    def batches(step):
        x, y = points(step)
        return points(0)[0][:1].expand_as(x), y

    _, seen = train(mlp(), batches, steps=120)
    found_anywhere(seen, "samples-alike")


def test_a_momentum_of_zero_is_named():
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32, momentum=0.0), nn.ReLU(), nn.Linear(32, 2))
    nn.init.normal_(model[0].weight, std=3.0)
    _, seen = train(model, points, steps=60)
    assert found(seen, "running-statistics").title == "running statistics stand still"


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_units_that_a_small_batch_leaves_at_zero_are_not_called_dead(batch):
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    _, seen = train(model, lambda step: points(step, batch), steps=40, lr=1e-4)
    assert absent(seen, "dead-units")


@pytest.mark.parametrize("batch", [1, 4])
def test_channels_that_few_pictures_leave_at_zero_are_not_called_dead(batch):
    def batches(step):
        y = (torch.arange(batch) + step) % 16
        return (F.one_hot(y, 16).float() - 0.5)[..., None, None].expand(batch, 16, 6, 6), y

    model = nn.Sequential(nn.Conv2d(16, 16, 1), nn.ReLU(), nn.Conv2d(16, 16, 6), nn.Flatten())
    nn.init.dirac_(model[0].weight)
    _, seen = train(model, batches, steps=40, lr=1e-4)
    assert absent(seen, "dead-units")
    assert any("whether units are dead" in question for question in seen.diagnosis().unknown)


def test_a_channel_that_lives_in_some_of_many_huge_pictures_is_not_dead():
    x = torch.zeros(32, 4, 1, 1)
    x[8, :3] = 1
    assert dead_share(x.expand(-1, -1, 512, 512), axis=1) == 0.25


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "shape, places", [((16, 64, 64, 64), (1, 1)), ((16, 2048, 7, 7), (0, 1)), ((9, 2048, 7, 7), 0)]
)
def test_channels_that_live_at_a_part_of_the_places_or_pictures_are_not_dead(shape, places, layout):
    x = torch.zeros(shape).to(memory_format=layout)
    if places:
        x[..., places[0] :: 2, places[1] :: 2] = 1
    else:
        x[torch.arange(shape[1]) % len(x), torch.arange(shape[1])] = 1
    assert dead_share(x, axis=1) == 0


@pytest.mark.parametrize("batch", [16, 20, 40, 100])
def test_dead_channels_of_small_maps_are_known_at_any_batch_size(batch):
    assert dead_share(torch.zeros(batch, 4, 1, 1), axis=1) == 1


def test_a_loss_of_sigmoids_is_no_scaled_cross_entropy():
    def loss(scores, y):
        return F.binary_cross_entropy_with_logits(scores, F.one_hot(y, 10).float())

    def batches(step):
        x, _ = points(step)
        return x, (x[:, :1].sum(1) * 3).long().clamp(-4, 4) + 4

    _, seen = train(mlp(outputs=10), batches, steps=120, lr=1e-2, loss=loss)
    assert absent(seen, "scaled-loss")


def test_a_hard_sample_in_a_loss_that_is_nearly_none_is_no_spike():
    def batches(step):
        x, y = points(step, 512)
        return 4 * x.sign(), torch.cat([1 - y[:1], y[1:]]) if step == 59 else y

    model = mlp(width=64)
    train(model, batches, steps=55, lr=1e-2, watched=False)
    losses, seen = train(model, batches, steps=100, lr=1e-4)
    assert losses[59] > 10 * losses[58], "there is one"
    assert absent(seen, "loss-spikes")
    assert absent(seen, "gradient-spikes")


@pytest.mark.parametrize("peak, spikes", [(2.05, 0), (2.15, 1)])
def test_a_spike_is_at_least_half_as_high_as_the_loss_began(peak, spikes):
    read = {"loss": [4.0, *[0.1] * 7], "loss_peak": [4.0, *[0.1] * 6, peak], "classes": [math.nan] * 8}
    history = SimpleNamespace(steps=list(range(1, 9)), series=lambda _, what: np.array(read[what]))
    assert len(list(loss_spikes.find(history))) == spikes


@pytest.mark.parametrize("width", [4, 32, 64, 384])
@pytest.mark.parametrize("halves", [False, True])
def test_a_fixed_table_of_positions_is_no_frozen_layer(width, halves):
    angles = torch.arange(96)[:, None] / 1e4 ** (torch.arange(width // 2) / (width // 2))
    table = torch.cat([angles.sin(), angles.cos()], 1) if halves else torch.stack([angles.sin(), angles.cos()], 2)
    model = mlp()
    model[0].positions = nn.Embedding.from_pretrained(table.reshape(96, width))
    assert list(facts.of(model, [], 1)["frozen"]) == []
    model[2].requires_grad_(False)
    assert list(facts.of(model, [], 1)["frozen"]) == [("2.weight", False)]


def test_a_frozen_layer_of_a_model_that_was_trained_is_not_certain():
    model = mlp()
    train(model, points, steps=100, lr=1e-2, watched=False)
    model[0].requires_grad_(False)
    _, seen = train(model, points, steps=30)
    assert found(seen, "frozen-layers").certainty == "possible"


def test_a_model_that_is_trained_in_evaluation_mode():
    def trained(mode):
        return train(mlp(depth=4, norm="batchnorm", gain=0.3).train(mode), points, steps=120, make=SGD, lr=0.1)

    losses, seen = trained(False)
    finding = found_anywhere(seen, "evaluation-mode")
    assert "model.training was False in all" in finding.evidence
    assert "1 and other batch norms" in finding.evidence
    assert finding.where == ("1", "4", "7", "10")
    assert names(finding) == ["training mode"]
    assert late(trained(True)[0]) < 0.6 * late(losses)


def test_what_may_be_in_evaluation_mode_is_not_blamed():
    def evaluated_between(step):
        if step % 6 == 2:
            model.eval()
            model(points(step)[0])
            model.train()
        return points(step)

    model = mlp(norm="batchnorm")
    _, seen = train(model, evaluated_between, steps=40)
    assert absent(seen, "evaluation-mode")
    frozen = mlp(norm="batchnorm").eval()
    for part in frozen:
        part.requires_grad_(not hasattr(part, "running_var"))
    assert absent(train(frozen, points, steps=40)[1], "evaluation-mode")
    without = mlp(norm="layernorm").eval()
    assert absent(train(without, points, steps=40)[1], "evaluation-mode")


def test_dropout_that_drops_nothing_is_named():
    model = nn.Sequential(mlp(), nn.Dropout(0.5)).eval()
    _, seen = train(model, points, steps=40)
    [finding] = seen.diagnosis().of("evaluation-mode")
    assert "dropouts drop nothing" in finding.evidence


@pytest.mark.parametrize("share", [0.9, 0.98])
def test_a_dropout_that_leaves_next_to_nothing_comes_before_what_it_does(share):
    def dropping(share):
        layers = [
            part for layer in mlp(depth=2) for part in (layer, nn.Dropout(share))[: 1 + isinstance(layer, nn.ReLU)]
        ]
        return train(nn.Sequential(*layers), points, steps=120)

    losses, seen = dropping(share)
    finding = found_anywhere(seen, "strong-dropout")
    assert finding.where == ("2", "5")
    assert f"2 drops {share} of its input" in finding.evidence
    assert late(dropping(0.1)[0]) < 0.7 * late(losses)
    assert absent(dropping(0.1)[1], "strong-dropout")


@pytest.mark.parametrize(("make", "lr"), [(torch.optim.AdamW, 3e-3), (SGD, 1e-2)])
def test_targets_of_a_squared_error_that_are_far_from_size_one(make, lr):
    def trained(scale):
        model = mlp(outputs=1)
        optimizer, losses = make(model.parameters(), lr=lr), []
        with nk.watch(model, optimizer, every=6) as seen:
            for step in range(120):
                x, _ = points(step)
                loss = F.mse_loss(model(x), scale * (x[:, :1] + x[:, 1:2] * x[:, 2:3] + 2))
                seen.loss(loss)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item() / scale**2)
        return losses, seen

    losses, seen = trained(1e4)
    finding = found_anywhere(seen, "target-scale")
    mean, deviation = map(float, re.findall(r"-?[\d.]+(?:e[+-]?\d+)?", finding.remedies[0].line))
    assert 1e4 < mean < 3e4
    assert 1e4 < deviation < 2e4
    fair, healthy = trained(1.0)
    assert absent(healthy, "target-scale")
    assert late(fair) < 1.0
    assert not late(losses) < 2 * late(fair), "NaN where it blows up"


def advice():
    """Every remedy whose line stands in the code: where, the line, and whether it is to run."""
    for path in Path(watching.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "Remedy"
                and isinstance(node.args[1], ast.Constant)
            ):
                runs = [*node.args[2:3], *(word.value for word in node.keywords if word.arg == "runs")]
                yield f"{path.name}:{node.lineno}", node.args[1].value, not runs or ast.unparse(runs[0]) != "False"


def test_advice_that_is_no_code_is_never_run():
    lines = list(advice())
    assert len(lines) > 20
    for where, line, runs in lines:
        if runs:
            compile(line, where, "exec")
