"""What a race decides, and after how many turns, by a clock that the racers put forward."""

import itertools
import random
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.surgery.exact import fusing, racing

RACES = 400
DEVICE = torch.device("cpu")
FEWEST = racing.fewest(racing.SURE)
WON = racing.Outcome(1.0, 0.5, True)


class Clock:
    """A call takes a time of its own and noise, of the machine's, that lasts for some calls."""

    def __init__(self, monkeypatch, noise=0.0, seed=0):
        self.now, self.noise, self.drawn = 0.0, noise, random.Random(seed)
        self.load, self.calls = 0.0, 0
        monkeypatch.setattr(racing, "_clock", lambda device: lambda: self.now)

    def rival(self, seconds):
        def call():
            self.calls += 1
            self.load = 0.7 * self.load + self.drawn.gauss(0, self.noise)
            self.now += seconds * max(0.2, 1 + self.load)

        return call

    def race(self, old, new, **how):
        return racing._race([self.rival(old), self.rival(new)], DEVICE, 1, **how)


def share(monkeypatch, ratio, noise, **how):
    """Of how many races what takes so many times as long is said to be faster."""
    said = [Clock(monkeypatch, noise, seed).race(1e-3, 1e-3 * ratio, **how).faster for seed in range(RACES)]
    return sum(said) / RACES


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("ratio", [1.0, 1.05])
def test_what_is_no_faster_is_rarely_said_to_be(ratio, noise, monkeypatch):
    assert share(monkeypatch, ratio, noise, margin=1.0) <= (1 / racing.SURE if ratio == 1 else 0.01)


@pytest.mark.parametrize(("ratio", "noise", "least"), [(0.98, 0.0, 1.0), (0.95, 0.03, 0.95), (0.9, 0.1, 0.8)])
def test_what_is_faster_is_mostly_found(ratio, noise, least, monkeypatch):
    assert share(monkeypatch, ratio, noise, margin=1.0) >= least


def test_a_site_must_gain_more_than_its_margin(monkeypatch):
    assert share(monkeypatch, 0.98, 0.01) <= 1 / racing.SURE
    assert share(monkeypatch, 0.93, 0.01) >= 0.99


@pytest.mark.parametrize(
    "rhythm", [(1.0, 0.9), (1.0, 1.1), (1.1, 1.0, 1.0, 1.1), (1.0, 1.1, 1.1, 1.0), (1.1, 1.0, 1.0)]
)
def test_nothing_is_gained_by_a_place_in_a_rhythm(rhythm, monkeypatch):
    clock = Clock(monkeypatch)
    places = itertools.cycle(rhythm)

    def call():
        clock.now += next(places)

    assert not racing._race([call, call], DEVICE, 1, 1.0).faster


def test_seconds_are_medians_of_turns(monkeypatch):
    clock = Clock(monkeypatch)
    spikes = iter([1.0, 1.0, 9.0])

    def old():
        clock.now += next(spikes, 1.0)

    assert racing._race([old, clock.rival(0.5)], DEVICE, 1) == (1.0, 0.5, True, True)


def test_odds_are_fair():
    """At even chances the mean over all ways that turns can end is what was there before."""
    for turns in (1, 4, 9):
        ends = [sum(way) for way in itertools.product((0, 1), repeat=turns)]
        assert sum(racing.odds(won, turns - won) for won in ends) / len(ends) == pytest.approx(1)


@pytest.mark.parametrize("sure", [racing.SURE, 2 * racing.SURE])
def test_the_fewest_turns_are_those_that_decide_if_all_are_won(sure):
    assert racing.odds(racing.fewest(sure) - 1, 0) < sure <= racing.odds(racing.fewest(sure), 0)


@pytest.mark.parametrize(
    ("old", "new", "turns"),
    [
        (60.0, 30.0, FEWEST),  # a pass that takes a minute
        (60.0, 90.0, 1),  # after one lost turn the others are too few
        (1e-3, 0.5e-3, FEWEST),
        (1e-3, 2e-3, FEWEST),
    ],
)
def test_a_race_ends_when_it_is_decided(old, new, turns, monkeypatch):
    clock = Clock(monkeypatch)
    clock.race(old, new)
    assert clock.calls == 2 * (turns + 1)


@pytest.mark.parametrize(("seconds", "most"), [(1e-3, racing.MOST), (1.5, 35)])
def test_a_race_that_stays_open_ends(seconds, most, monkeypatch):
    """After so many turns that the new one cannot win enough of those that are left, by time or by number."""
    clock = Clock(monkeypatch)
    turns = itertools.cycle([0.5, 2.0])

    def new():
        clock.calls += 1
        clock.now += seconds * next(turns)

    assert not racing._race([clock.rival(seconds), new], DEVICE, 1).faster
    assert most / 2 < clock.calls / 2 - 1 <= most


@pytest.mark.parametrize(
    ("most", "paces", "why"),
    [
        (20, [0.9, 0.99, 0.95], "left: that it is faster is not sure"),  # two turns of three are too few in 20
        (racing.MOST, [0.98], "left: it is faster by less than 3%"),
        (racing.MOST, [1.02], "left: it is no faster"),
    ],
)
def test_what_is_left_is_left_for_a_reason_that_its_times_bear_out(most, paces, why, monkeypatch):
    monkeypatch.setattr(racing, "MOST", most)
    clock, turns = Clock(monkeypatch), itertools.cycle(paces)

    def new():
        clock.now += next(turns) * 1e-3

    outcome = racing._race([clock.rival(1e-3), new], DEVICE, 1)
    assert not outcome.faster
    monkeypatch.setattr(fusing, "race", lambda *_: outcome)
    assert why in str(nk.fuse(nn.Sequential(nn.LayerNorm(6))))


@pytest.mark.parametrize(("sure", "faster"), [(racing.SURE, True), (2 * racing.SURE, False)])
def test_what_is_nearly_sure_at_the_end_has_not_won(sure, faster, monkeypatch):
    """All but the last of its turns are played: what it has is too little of what was asked, and enough of less."""
    monkeypatch.setattr(racing, "MOST", 200)
    won = next(won for won in range(200) if racing.odds(won, 199 - won) >= racing.SURE)
    even = [(i + 1) * won // 198 > i * won // 198 for i in range(198)]
    turns = iter([True, *even, False, True])
    clock = Clock(monkeypatch)

    def new():
        clock.now += 0.5e-3 if next(turns) else 2e-3

    assert racing._race([clock.rival(1e-3), new], DEVICE, 1, 1.0, sure).faster is faster


@pytest.mark.parametrize("training", [True, False])
def test_modules_race_on_copies_in_the_mode_that_is_asked_for(training, monkeypatch):
    modes = []

    class Layer(nn.Linear):
        def forward(self, x):
            modes.append((self.training, torch.is_grad_enabled(), x.dtype, x.shape))
            return super().forward(x)

    monkeypatch.setattr(racing, "_race", lambda calls, device: [call() for call in calls] and (len(calls), device))
    one, other = Layer(3, 2).double(), Layer(3, 2).double()
    assert racing.race(one, other, (4, 3), training) == (2, DEVICE)
    assert modes == [(training, training, torch.float64, (4, 3))] * 2
    assert one.weight.grad is other.weight.grad is None


def test_one_thread_is_timed_by_the_processor(monkeypatch):
    for threads, clock in ((1, "process_time"), (4, "perf_counter")):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        monkeypatch.setattr(racing.sys, "platform", "linux")
        assert racing._clock(DEVICE).__name__ == clock
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(racing.sys, "platform", "win32")
    assert racing._clock(DEVICE).__name__ == "perf_counter"


def test_models_that_race_hold_the_same_parameters_and_leave_the_users_alone():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.LayerNorm(3))
    model(torch.randn(4, 3)).sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    plan = fusing._Plan(model, True, {})
    plan.made = {"2": nn.LayerNorm(3)}
    plan.made["2"].weight, plan.made["2"].bias = model[2].weight, model[2].bias
    before, after = plan._twins()
    assert after[2] is not before[2]
    assert {id(p) for p in after.parameters()} == {id(p) for p in before.parameters()}
    assert not {id(p) for p in after.parameters()} & {id(p) for p in model.parameters()}
    assert not {id(b) for b in after.buffers()} & {id(b) for b in before.buffers()}
    racing.race_models(before, after, torch.randn(4, 3), True)
    assert all(torch.equal(p.grad, grad) for p, grad in zip(model.parameters(), grads, strict=True))
    assert before[1].num_batches_tracked > 1
    assert after[1].num_batches_tracked > 1


@pytest.mark.parametrize("other", [lambda norm: norm.bfloat16(), lambda norm: norm.requires_grad_(False)])
def test_each_kind_of_site_is_raced_once(other, monkeypatch):
    raced = []

    def race(old, *_):
        raced.append((old.weight.dtype, old.weight.requires_grad))
        return racing.Outcome(1.0, 0.5, True)

    monkeypatch.setattr(fusing, "race", race)
    norms = nn.LayerNorm(12), nn.LayerNorm(12), other(nn.LayerNorm(12))
    nk.fuse(nn.Sequential(*norms), inplace=False)
    assert raced == [(norm.weight.dtype, norm.weight.requires_grad) for norm in norms[1:]]


@pytest.mark.parametrize("moved", [True, False])
def test_both_ways_of_a_turn_that_race_compute_the_same(moved, monkeypatch):
    found = []
    monkeypatch.setattr(racing, "_call", lambda way, pair, training: found.append(way(*pair)))
    monkeypatch.setattr(racing, "_race", lambda ways, device: None)

    def by(q, k, cos, sin):
        def turned(x):
            front, behind = x.chunk(2, -1)
            return x * cos.unsqueeze(1) + torch.cat((-behind, front), -1) * sin.unsqueeze(1)

        return turned(q), turned(k)

    norms, shape = [nk.RMSNorm(8, eps=1e-6) for _ in range(2)], (2, 3, 5, 8) if not moved else (2, 5, 3, 8)
    racing.race_turn(SimpleNamespace(moved=moved, by=by), norms, norms, [shape, shape], True)
    torch.testing.assert_close(*found)


class Block(nn.Module):
    """Two norms, and an addition that goes into the second."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.LayerNorm(6), nn.LayerNorm(6)

    def forward(self, x):
        x = x + self.one(x)
        return x + self.two(x)


@pytest.fixture
def pace(monkeypatch):
    """Seconds that theirs, ours and an addition in ours put a clock forward; races of sites are won."""
    now, seconds = [0.0], {"theirs": 4.0, "ours": 3.0, "added": 3.0}

    def slowed(own, which):
        def call(*given, **named):
            now[0] += seconds[which]
            return own(*given, **named)

        return call

    monkeypatch.setattr(racing, "_clock", lambda device: lambda: now[0])
    monkeypatch.setattr(nn.LayerNorm, "forward", slowed(nn.LayerNorm.forward, "theirs"))
    monkeypatch.setattr(nk.LayerNorm, "forward", slowed(nk.LayerNorm.forward, "ours"))
    monkeypatch.setattr(nk.LayerNorm, "add_norm", slowed(nk.LayerNorm.add_norm, "added"))
    for name in ("race", "race_addition"):
        monkeypatch.setattr(fusing, name, lambda *_: WON)
    return seconds


@pytest.mark.parametrize(
    ("paces", "became"),
    [
        ({}, ["LayerNorm", "LayerNorm with the addition before it"]),
        ({"added": 6.0}, ["LayerNorm", "LayerNorm"]),  # with additions it would be slower
        ({"added": 5.0}, ["LayerNorm", "LayerNorm"]),  # and just as fast
        ({"ours": 5.0, "added": 2.0}, ["LayerNorm", "LayerNorm with the addition before it"]),
        ({"ours": 4.0, "added": 4.0}, [None, None]),
        ({"ours": 5.0, "added": 5.0}, [None, None]),
    ],
)
def test_where_the_whole_is_no_faster_norms_are_tried_alone(paces, became, pace):
    pace |= paces
    model, x = nn.Sequential(nn.Linear(6, 6), Block()).eval(), torch.randn(4, 6)
    wanted = model(x)
    report = nk.fuse(model, x)
    assert [change.became for change in report] == became
    assert [type(norm) is nk.LayerNorm for norm in (model[1].one, model[1].two)] == [bool(name) for name in became]
    assert (type(model[1]) is Block) == (became[1] != "LayerNorm with the addition before it")
    assert {change.why_not for change in report} == {None if became[0] else "the model as a whole is no faster"}
    assert {change.difference is None for change in report} == {not became[0]}
    torch.testing.assert_close(model(x), wanted)


def test_other_numbers_are_no_way_to_be_faster_but_the_norms_alone_are(pace, monkeypatch):
    monkeypatch.setattr(fusing.adding, "add_then", lambda norm, x, y: (norm(x + y) * 1.01, x + y))
    model = nn.Sequential(nn.Linear(6, 6), Block()).eval()
    assert [change.became for change in nk.fuse(model, torch.randn(4, 6))] == ["LayerNorm", "LayerNorm"]


def test_two_attempts_are_no_surer_to_be_wrong_than_one(monkeypatch):
    """What is no faster passes once in twenty times at most, whichever way is tried."""
    clocks = (Clock(monkeypatch, 0.05, seed) for seed in itertools.count())
    asked, norm = [], nn.LayerNorm(6)

    def race_models(before, after, example, training, sure):
        asked.append(sure)
        return next(clocks).race(1e-3, 1e-3, margin=1.0, sure=sure)

    monkeypatch.setattr(fusing, "race_models", race_models)
    monkeypatch.setattr(fusing.proof, "prove", lambda *_: 0.0)
    monkeypatch.setattr(fusing.proof, "prove_edits", lambda *_: None)
    monkeypatch.setattr(fusing._Plan, "_twins", lambda plan: (plan.model, plan.model))
    passed = 0
    for _ in range(RACES):
        plan = fusing._Plan(Block(), False, {})
        plan.alone = fusing._Way({"one": norm}, {}, {})
        plan.made, plan.classes = {"one": norm}, {"": Block}
        plan.hold_to(None)
        passed += bool(plan.made)
    assert passed <= RACES / racing.SURE
    assert set(asked) == {2 * racing.SURE}
    assert len(asked) > RACES  # the norms alone had their turn


@pytest.mark.parametrize(("model", "alone"), [(nn.LayerNorm(6), True), (Block(), False)])
def test_one_attempt_is_not_asked_for_more(model, alone, monkeypatch):
    """Without additions, or without norms that win alone."""
    asked = []
    monkeypatch.setattr(fusing, "race", lambda *_: WON._replace(faster=alone))
    monkeypatch.setattr(fusing, "race_addition", lambda *_: WON)
    monkeypatch.setattr(fusing, "race_models", lambda *given: asked.append(given[-1]) or WON._replace(faster=False))
    assert not nk.fuse(nn.Sequential(nn.Linear(6, 6), model), torch.randn(4, 6)).done
    assert asked == [racing.SURE]


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d])
def test_without_an_example_sites_are_timed_at_a_size_that_they_take(norm, monkeypatch):
    sizes = []
    monkeypatch.setattr(fusing, "race", lambda old, new, shape, training: sizes.append(shape) or WON)
    report = nk.fuse(nn.Sequential(norm(8)))
    assert len(report) == 1
    assert norm(8)(torch.zeros(sizes[0])).shape == sizes[0]


def test_a_site_whose_size_no_guess_fits_asks_for_an_example(monkeypatch):
    monkeypatch.setattr(fusing, "takes", lambda module, shape: False)
    (row,) = nk.fuse(nn.Sequential(nn.BatchNorm2d(8)))
    assert row.became is None
    assert "an example tells it" in row.why_not
