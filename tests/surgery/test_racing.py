"""What a race decides, and after how many turns, by a clock that the racers put forward."""

import itertools
import random
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.surgery import fusing, racing

RACES = 400
DEVICE = torch.device("cpu")


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
        return racing._raced([self.rival(old), self.rival(new)], DEVICE, 1, **how)


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

    assert not racing._raced([call, call], DEVICE, 1, 1.0).faster


def test_seconds_are_medians_of_turns(monkeypatch):
    clock = Clock(monkeypatch)
    spikes = iter([1.0, 1.0, 9.0])

    def old():
        clock.now += next(spikes, 1.0)

    assert racing._raced([old, clock.rival(0.5)], DEVICE, 1) == (1.0, 0.5, True)


def test_odds_are_fair():
    """At even chances the mean over all ways that turns can end is what was there before."""
    for turns in (1, 4, 9):
        ends = [sum(way) for way in itertools.product((0, 1), repeat=turns)]
        assert sum(racing.odds(won, turns - won) for won in ends) / len(ends) == pytest.approx(1)
    assert racing.odds(racing.FEWEST - 1, 0) < racing.SURE <= racing.odds(racing.FEWEST, 0)


@pytest.mark.parametrize(
    ("old", "new", "turns"),
    [
        (60.0, 30.0, racing.FEWEST),  # a pass that takes a minute
        (60.0, 90.0, 1),  # after one lost turn the others are too few
        (1e-3, 0.5e-3, racing.FEWEST),
        (1e-3, 2e-3, racing.FEWEST),
    ],
)
def test_a_race_ends_when_it_is_decided(old, new, turns, monkeypatch):
    clock = Clock(monkeypatch)
    clock.race(old, new)
    assert clock.calls == 2 * (turns + 1)


def test_a_race_that_stays_open_ends(monkeypatch):
    clock = Clock(monkeypatch)
    turns = itertools.cycle([0.5e-3, 0.5e-3, 2e-3])

    def new():
        clock.calls += 1
        clock.now += next(turns)

    racing._raced([clock.rival(1e-3), new], DEVICE, 1)
    assert 2 * racing.FEWEST < clock.calls <= 2 * (racing.MOST + 1)


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
    monkeypatch.setattr(racing, "_raced", lambda ways, device: None)

    def by(q, k, cos, sin):
        def turned(x):
            front, behind = x.chunk(2, -1)
            return x * cos.unsqueeze(1) + torch.cat((-behind, front), -1) * sin.unsqueeze(1)

        return turned(q), turned(k)

    norms, shape = [nk.RMSNorm(8, eps=1e-6) for _ in range(2)], (2, 3, 5, 8) if not moved else (2, 5, 3, 8)
    racing.race_turn(SimpleNamespace(moved=moved, by=by), norms, norms, [shape, shape], True)
    torch.testing.assert_close(*found)
