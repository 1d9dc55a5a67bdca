"""Planted gaps along a ladder: one that closes, grows, stays, and none; drawn with the noise that seeds make."""

import math

import numpy as np
import pytest

from normkit.lab.plan import trends
from normkit.lab.plan.findings import Interval
from normkit.lab.plan.trends import CLOSING, GROWING, STAYS, UNKNOWN

RUNGS = (1.0, 2.0, 4.0)
DRAWS = 20


def drawn(draw, gaps, rungs=RUNGS, seeds=5, noise=0.008):
    """Losses by rung, variant and seed: the baseline's falls, each seed has its luck, each run noise of its own.

    ``gaps`` says by variant what it has above the baseline at a number of doublings.
    """
    chance = np.random.default_rng([draw, 30])
    values = {}
    for rung in rungs:
        octaves = math.log2(rung)
        luck = 3.0 - 0.3 * octaves + chance.normal(0, 0.05, seeds)
        own = {name: luck + gap(octaves) + chance.normal(0, noise, seeds) for name, gap in gaps.items()}
        values[rung] = {"base": dict(enumerate(luck + chance.normal(0, noise, seeds), 1))}
        values[rung] |= {name: dict(enumerate(found, 1)) for name, found in own.items()}
    return values


def words(gaps, **given):
    """Count the words of each variant over the draws."""
    told = [trends.trends(drawn(draw, gaps, **given), "base", relative=True) for draw in range(DRAWS)]
    return {name: [one[name].word for one in told] for name in gaps}


PLANTED = {
    CLOSING: lambda octaves: 0.12 - 0.04 * octaves,
    GROWING: lambda octaves: 0.02 + 0.04 * octaves,
    STAYS: lambda octaves: 0.06,
}


@pytest.mark.parametrize(("word", "seeds"), [(CLOSING, 5), (GROWING, 5), (STAYS, 10)])
def test_a_planted_trend_is_seen_in_18_of_20_draws_among_two_others(word, seeds):
    assert words(PLANTED, noise=0.006, seeds=seeds)[word].count(word) >= 18


def test_a_closing_and_a_growing_gap_are_seen_below_the_baseline_as_well():
    below = {CLOSING: lambda octaves: -0.12 + 0.04 * octaves, GROWING: lambda octaves: -0.02 - 0.04 * octaves}
    for word, seen in words(below, noise=0.006).items():
        assert seen.count(word) >= 18


@pytest.mark.parametrize("gap", [0.0, 0.1])
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_of_20_draws_of_nothing_at_most_one_has_a_trend(gap, seeds):
    """Three variants whose gaps are the same on all rungs: the chance of any finding in a draw is one in twenty."""
    seen = words({name: lambda octaves: gap for name in "abc"}, seeds=seeds, noise=0.03)
    findings = [any(seen[name][draw] in (CLOSING, GROWING) for name in seen) for draw in range(DRAWS)]
    assert sum(findings) <= 1


def test_nothing_is_reported_where_noise_hides_it():
    assert words(PLANTED, noise=0.5)[CLOSING].count(UNKNOWN) >= 18


def test_the_slope_the_p_and_the_needed_seeds_are_those_of_a_t_test_by_hand():
    base = {1: 2.0, 2: 2.0, 3: 2.0, 4: 2.0}
    slopes = np.array([-0.10, -0.08, -0.11, -0.07])
    values = {r: {"base": base, "a": {s: 2.5 + slopes[s - 1] * k for s in base}} for k, r in enumerate(RUNGS)}
    one = trends.trends(values, "base")["a"]
    error = slopes.std(ddof=1) / 2
    t = slopes.mean() / error
    assert one.slope.mean == pytest.approx(-0.09)
    assert one.slope.half == pytest.approx(3.182446 * error)
    from scipy import stats

    assert one.p == pytest.approx(2 * stats.t.sf(-t, 3), rel=1e-6)
    assert [end.mean for end in one.ends] == pytest.approx([0.5, 0.32])
    assert one.word == CLOSING
    assert list(one.ahead) == [8.0, 16.0]
    assert one.ahead[8.0].mean == pytest.approx(0.23)
    # 3 octaves above the first rung: 9 times the variance of the slopes, and the mean of 0, 1 and 4 times between seeds
    assert one.ahead[8.0].half == pytest.approx(3.182446 * math.sqrt(9 + 5 / 3) * error)


def test_p_is_corrected_for_the_variants_and_controls_are_none():
    gaps = dict.fromkeys("abcd", PLANTED[CLOSING])
    many = trends.trends(drawn(0, gaps), "base")
    alone = {name: trends.trends({r: {k: v[k] for k in ("base", name)} for r, v in drawn(0, gaps).items()}, "base")
             for name in gaps}  # fmt: skip
    ordered = sorted(alone, key=lambda name: alone[name][name].p)
    assert many[ordered[0]].p == pytest.approx(4 * alone[ordered[0]][ordered[0]].p)
    assert many[ordered[-1]].p >= alone[ordered[-1]][ordered[-1]].p


def test_predictions_hold_the_measured_mean_in_nineteen_of_twenty():
    """Where the gap is a line, the interval holds what as many seeds measure there; where it bends, it does not."""
    rungs = (1.0, 2.0, 4.0, 8.0)
    right = {"line": [], "bent": []}
    for draw in range(200):
        bend = {"line": lambda octaves: 0.1 - 0.02 * octaves, "bent": lambda octaves: 0.1 if octaves < 3 else 0.3}
        for name, one in trends.trends(drawn(draw, bend, rungs), "base").items():
            last = one.forecasts[-1]
            assert last.rung == 8.0
            right[name].append(last.is_right)
    assert 0.94 <= np.mean(right["line"]) <= 1
    assert np.mean(right["bent"]) < 0.05


def test_what_is_checked_is_what_was_predicted_when_the_rungs_were_added():
    rungs = (1.0, 2.0, 4.0, 8.0, 16.0)
    values = drawn(1, {"a": lambda octaves: 0.1 - 0.02 * octaves}, rungs)
    before = trends.trends({r: values[r] for r in (1.0, 2.0, 4.0)}, "base")["a"]
    after = trends.trends(values, "base", rounds=[(1.0, 2.0, 4.0)])["a"]
    checked = {one.rung: one.predicted for one in after.forecasts}
    assert set(checked) == {4.0, 8.0, 16.0}
    assert {r: checked[r] for r in (8.0, 16.0)} == before.ahead
    one_by_one = {one.rung: one.predicted for one in trends.trends(values, "base")["a"].forecasts}
    assert one_by_one[16.0] != checked[16.0]


def test_a_rung_without_enough_seeds_is_left_out_and_one_rung_tells_nothing():
    values = drawn(0, {"a": PLANTED[CLOSING]})
    values[4.0]["a"] = {1: 2.0, 2: 2.0}
    one = trends.trends(values, "base")["a"]
    assert list(one.ahead) == [4.0, 8.0]
    assert one.gaps[4.0].count == 2
    del values[2.0]["a"]
    one = trends.trends(values, "base")["a"]
    assert one.word == UNKNOWN
    assert math.isnan(one.p)
    assert one.ahead == {}


def test_equal_runs_stay_without_noise_to_tell_by():
    same = dict.fromkeys(range(1, 6), 2.0)
    one = trends.trends({r: {"base": same, "a": dict(same)} for r in RUNGS}, "base")["a"]
    assert (one.word, one.slope) == (STAYS, Interval(0.0, 0.0, 5))
    shifted = dict.fromkeys(same, 2.3)
    one = trends.trends({r: {"base": same, "a": shifted} for r in RUNGS}, "base")["a"]
    assert (one.word, one.p) == (STAYS, 1.0)


def test_gaps_of_a_loss_are_shares_of_the_baselines_on_the_highest_rung():
    """A gap that stays, while the loss falls, does not grow."""
    levels = {1.0: 4.0, 2.0: 2.0}
    values = {
        r: {"base": dict.fromkeys((1, 2, 3), x), "a": dict.fromkeys((1, 2, 3), x + 0.1)} for r, x in levels.items()
    }
    one = trends.trends(values, "base", relative=True)["a"]
    assert [gap.mean for gap in one.gaps.values()] == pytest.approx([0.05, 0.05])
    assert one.word == STAYS
