"""The statistics keep what they promise: against scipy's own tests, and over many pretended comparisons."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from normkit.lab.plan import findings
from normkit.lab.plan.findings import BETTER, DECIDED, EQUAL, FEW, LEVEL, SAME, WORSE
from normkit.lab.report import advice
from normkit.lab.training.speed import interval_of_median

stats = pytest.importorskip("scipy.stats")


def losses(draw, seeds, luck, noise, gain=0.0):
    """Final losses by seed: a seed's luck, which all variants share, and noise of a variant's own."""
    return {seed: 2.0 + luck[seed] - gain + noise * draw() for seed in range(seeds)}


def test_the_interval_is_students():
    values = [2.1, 2.4, 1.9, 2.2]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    mean, half, count = findings.interval(values)
    assert (mean - half, mean + half, count) == (pytest.approx(low), pytest.approx(high), 4)


def test_one_value_has_no_interval():
    mean, half, count = findings.interval([2.0])
    assert (mean, count) == (2.0, 1)
    assert math.isnan(half)
    assert math.isnan(findings.interval([]).mean)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    random = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        mean, half, _ = findings.interval(random.normal(3, 0.1, 4))
        held += abs(mean - 3) <= half
    assert held in range(int(stats.binom.ppf(0.0005, 2000, 0.95)), int(stats.binom.ppf(0.9995, 2000, 0.95)) + 1)


def test_the_paired_test_is_scipys_over_the_seeds_in_common():
    a, b = {1: 2.0, 2: 2.3, 3: 2.1, 4: 2.2, 9: 7.0}, {4: 2.25, 3: 2.2, 2: 2.31, 1: 2.1, 8: 0.0}
    difference, p = findings.compare_pairs(a, b)
    expected = stats.ttest_rel([2.0, 2.3, 2.1, 2.2], [2.1, 2.31, 2.2, 2.25])
    assert p == pytest.approx(expected.pvalue)
    assert difference.mean == pytest.approx(-0.065)
    assert difference.count == 4


def test_pairing_sees_what_the_seeds_luck_would_hide():
    luck = np.random.default_rng(1).normal(0, 1, 6)
    noise = np.random.default_rng(2).normal
    a, b = losses(noise, 6, luck, 0.01), losses(noise, 6, luck, 0.01, gain=0.05)
    assert findings.findings({"a": a, "b": b}, "a")["b"].word == BETTER
    assert stats.ttest_ind(list(a.values()), list(b.values())).pvalue > 0.5


@pytest.mark.parametrize(
    ("ps", "corrected"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.01, 0.02, 0.03, 0.005], [0.03, 0.04, 0.04, 0.02]),  # sorted: 4 x 0.005, 3 x 0.01, 2 x 0.02, then never less
        ([0.5, 0.6, 0.9], [1.0, 1.0, 1.0]),
    ],
)
def test_holms_correction(ps, corrected):
    assert findings.holm(ps) == pytest.approx(corrected)


def test_the_same_numbers_are_as_good():
    same = {1: 2.0, 2: 2.1, 3: 1.9}
    found = findings.findings({"a": same, "b": dict(same)}, "a")["b"]
    assert (found.word, found.difference.mean, found.p, found.equal) == (EQUAL, 0.0, 1.0, 0.0)


def test_rounding_in_one_direction_is_no_difference():
    base = {seed: 2.0 + seed for seed in range(5)}
    found = findings.findings({"a": base, "b": {seed: loss * (1 + 2**-20) for seed, loss in base.items()}}, "a")["b"]
    assert (found.word, found.p) == (EQUAL, 1.0)


@pytest.mark.parametrize("level", [1e-3, 1.0, 1e3])
def test_rounding_is_a_share_of_the_level(level):
    other = {1: level * (1 + 0.9e-5), 2: level * (1 - 1.1e-5)}
    assert findings.differences(other, {1: level, 2: level}) == pytest.approx([0.0, -1.1e-5 * level], rel=1e-9, abs=0)


def test_the_same_shift_of_every_seed_is_one():
    found = findings.findings({"a": {1: 2.0, 2: 3.0, 3: 4.0}, "b": {1: 2.5, 2: 3.5, 3: 4.5}}, "a")["b"]
    assert (found.word, found.p) == (WORSE, 0.0)


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_two_seeds_are_too_few(seeds):
    a = {seed: 2.0 + seed for seed in range(3)}
    b = {seed: 1.0 + 1.1 * seed for seed in range(seeds)}
    found = findings.findings({"a": a, "b": b}, "a")["b"]
    assert found.word == FEW
    assert math.isnan(found.p)


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("variants", [1, 6])
@pytest.mark.parametrize("kind", ["normal", "heavy"])
def test_identical_variants_are_distinguished_in_one_comparison_of_twenty(seeds, variants, kind):
    """Any false finding among a comparison's variants counts; of 200 comparisons, what a binomial at 5 % allows."""
    random = np.random.default_rng([seeds, variants])
    draw = random.normal if kind == "normal" else lambda: random.standard_t(4)
    repetitions, false = 200, 0
    for _ in range(repetitions):
        luck = random.normal(0, 0.1, seeds)
        drawn = {str(name): losses(draw, seeds, luck, 0.01) for name in range(variants + 1)}
        false += any(found.word in (BETTER, WORSE) for found in findings.findings(drawn, "0", share=0).values())
    assert false <= stats.binom.ppf(0.999, repetitions, LEVEL)


def test_without_the_correction_they_would_not_be():
    random = np.random.default_rng(3)
    false = 0
    for _ in range(200):
        drawn = [losses(random.normal, 5, np.zeros(5), 0.01) for _ in range(7)]
        false += any(findings.compare_pairs(variant, drawn[0])[1] < LEVEL for variant in drawn[1:])
    assert false > stats.binom.ppf(0.999, 200, LEVEL)


def test_a_variant_that_must_win_is_found():
    """Ten times the noise with five seeds: the test's power is above 0.999 even after the correction for three."""
    random = np.random.default_rng(4)
    for _ in range(50):
        luck = random.normal(0, 0.1, 5)
        drawn = {name: losses(random.normal, 5, luck, 0.01) for name in "abc"}
        drawn["winner"] = losses(random.normal, 5, luck, 0.01, gain=0.1)
        assert findings.findings(drawn, "a")["winner"].word == BETTER


@pytest.mark.parametrize("higher, word", [(True, BETTER), (False, WORSE)])
def test_whether_more_is_better_is_said(higher, word):
    one, other = {1: 0.50, 2: 0.55, 3: 0.60}, {1: 0.70, 2: 0.76, 3: 0.81}
    assert findings.findings({"a": one, "b": other}, "a", higher=higher)["b"].word == word


def test_equivalence_is_two_t_tests_beside_the_margin():
    a, b = {1: 2.0, 2: 2.3, 3: 2.1, 4: 2.2}, {1: 2.01, 2: 2.29, 3: 2.12, 4: 2.2}
    difference = [b[seed] - a[seed] for seed in a]
    below = stats.ttest_1samp(difference, -0.03, alternative="greater").pvalue
    above = stats.ttest_1samp(difference, 0.03, alternative="less").pvalue
    assert findings.equivalence(b, a, 0.03) == pytest.approx(max(below, above))


def test_no_difference_found_is_not_as_good_as():
    """What varies by more than the margin may differ by it."""
    wide = {1: 2.0, 2: 2.2, 3: 1.9, 4: 2.1}
    narrow = {seed: 2.0 + 0.001 * (-1) ** seed for seed in wide}
    level = dict.fromkeys(wide, 2.0)
    found = findings.findings({"a": level, "wide": wide, "narrow": narrow}, "a")
    assert {name: finding.word for name, finding in found.items()} == {"wide": SAME, "narrow": EQUAL}
    assert found["narrow"].margin == pytest.approx(0.02)
    assert findings.findings({"a": level, "narrow": narrow}, "a", share=1e-4)["narrow"].word == SAME


def test_a_difference_that_is_sure_but_within_the_margin_is_as_good():
    level = {seed: 2.0 + 0.1 * seed for seed in range(6)}
    other = {seed: loss - 0.005 - 1e-4 * (-1) ** seed for seed, loss in level.items()}
    found = findings.findings({"a": level, "b": other}, "a")["b"]
    assert (found.word, found.p < 1e-4) == (EQUAL, True)


@pytest.mark.parametrize("variants", [1, 4])
def test_what_lies_a_margin_off_is_called_as_good_in_one_comparison_of_twenty(variants):
    random = np.random.default_rng(variants)
    repetitions, false = 400, 0
    for _ in range(repetitions):
        luck = random.normal(0, 0.01, 6)
        drawn = {str(name): losses(random.normal, 6, luck, 0.004, gain=0.02) for name in range(1, variants + 1)}
        drawn["0"] = {seed: 2.0 + luck[seed] for seed in range(6)}
        margin = 0.02 / findings.interval(drawn["0"].values()).mean
        false += any(found.word == EQUAL for found in findings.findings(drawn, "0", share=margin).values())
    assert false <= stats.binom.ppf(0.999, repetitions, LEVEL)
    assert false > 0 or variants > 1


@pytest.mark.parametrize("seeds, noise", [(3, 0.01), (5, 0.02), (12, 0.1)])
def test_the_smallest_difference_that_is_stated_is_found_four_times_in_five(seeds, noise):
    """Taken from the true spread, as the mean over many comparisons gives it."""
    random = np.random.default_rng(seeds)
    spread = 0.0
    for _ in range(300):
        spread += findings.least(random.normal(0, noise, seeds)) ** 2 / 300
    zero = dict.fromkeys(range(seeds), 0.0)
    drawn = random.normal(math.sqrt(spread), noise, (600, seeds))
    seen = sum(findings.compare_pairs(dict(enumerate(row)), zero)[1] <= LEVEL for row in drawn)
    assert 0.72 < seen / 600 < 0.93


def test_the_smallest_difference_grows_with_the_number_of_variants():
    level = {1: 2.0, 2: 2.1, 3: 1.9, 4: 2.2}
    other = {1: 2.05, 2: 2.08, 3: 1.97, 4: 2.2}
    alone = findings.findings({"a": level, "b": other}, "a")["b"].least
    among = findings.findings({"a": level, "b": other, "c": other, "d": other}, "a")["b"].least
    sd = np.std([other[s] - level[s] for s in level], ddof=1)
    assert alone == pytest.approx((stats.t.ppf(0.975, 3) + stats.t.ppf(0.8, 3)) * sd / 2)
    assert among == pytest.approx((stats.t.ppf(1 - 0.025 / 3, 3) + stats.t.ppf(0.8, 3)) * sd / 2)


def test_of_too_few_seeds_or_of_no_end_none_are_counted():
    assert math.isnan(findings.seeds_needed(np.array([-1.0, 1.0]), 0.01))
    assert findings.seeds_needed(np.array([-1.0, 1.0, 1e-9]), 0.0) == math.inf
    assert findings.seeds_needed(np.zeros(3), 0.01) == findings.ENOUGH
    assert math.isnan(findings.seeds_needed(np.zeros(3), 0.0))
    assert math.isnan(findings.seeds_needed(np.array([-1.0, 0.0, 1.0]), 0.0))


def played(draw, most, **given):
    """Add seeds as they are asked for until nothing is; return the findings and how many seeds each has had."""
    values = {name: {} for name in draw}
    while True:
        found, needed = findings.until_decided(values, "0", most, **given)
        missing = [(name, seed) for name in values for seed in range(len(values[name]) + 1, needed[name] + 1)]
        if not missing:
            return found, {name: len(had) for name, had in values.items()}
        for name, seed in missing:
            values[name][seed] = draw[name](seed)


def test_seeds_go_on_until_each_variant_is_decided():
    random = np.random.default_rng(0)
    draw = {
        "0": lambda seed: 2.0 + 0.1 * seed,
        "clear": lambda seed: 1.5 + 0.1 * seed + random.normal(0, 0.01),
        "equal": lambda seed: 2.0 + 0.1 * seed + random.normal(0, 0.002),
        "open": lambda seed: 2.0 + 0.1 * seed + random.normal(0.02, 0.2),
    }
    found, seeds = played(draw, 12)
    assert {name: finding.word for name, finding in found.items()} == {"clear": BETTER, "equal": EQUAL, "open": SAME}
    assert seeds == {"0": 12, "clear": 4, "equal": 4, "open": 12}
    del draw["open"]
    assert played(draw, 12)[1] == {"0": 4, "clear": 4, "equal": 4}


def test_a_comparison_under_way_says_nothing_before_a_look():
    level = {1: 2.0, 2: 2.1, 3: 2.2}
    found, needed = findings.until_decided({"a": level, "b": {s: v - 1 for s, v in level.items()}}, "a", 24)
    assert (found["b"].word, needed) == (FEW, {"a": 4, "b": 4})
    assert found["b"].difference.mean == pytest.approx(-1)


@pytest.mark.parametrize("variants, most", [(1, 24), (3, 24), (1, 8)])
def test_looking_often_keeps_false_findings_at_one_comparison_of_twenty(variants, most):
    random = np.random.default_rng([variants, most])
    repetitions, false, plain = 400, 0, 0
    for _ in range(repetitions):
        luck = random.normal(0, 0.1, most + 1)
        draw = {str(n): lambda seed, luck=luck: 2.0 + luck[seed] + random.normal(0, 0.01) for n in range(variants + 1)}
        found, _ = played(draw, most, share=0)
        false += any(finding.word in DECIDED for finding in found.values())
        values = {name: {seed: drawn(seed) for seed in range(1, most + 1)} for name, drawn in draw.items()}
        plain += any(
            finding.word in DECIDED
            for look in findings.looks(most)
            for finding in findings.findings(
                {n: {s: v for s, v in seen.items() if s <= look} for n, seen in values.items()}, "0", share=0
            ).values()
        )
    assert false <= stats.binom.ppf(0.999, repetitions, LEVEL)
    assert plain > stats.binom.ppf(0.999, repetitions, LEVEL)


def test_the_looks_spend_no_more_than_the_level():
    for most in (3, 4, 5, 24, 30, 200):
        assert sum(findings.levels(most).values()) == pytest.approx(LEVEL)
        assert [*findings.levels(most)] == findings.looks(most)


def placed(values, **given):
    return findings.places(values, findings.findings(values, "a", **given), "a", **given)


def test_places_of_their_own_are_for_variants_that_differ():
    level = {seed: 2.0 + 0.1 * seed for seed in range(5)}
    shaken = dict(zip(level, (0.01, -0.012, 0.004, -0.009, 0.007), strict=True))
    values = {
        "a": level,
        "b": {seed: loss + shaken[seed] for seed, loss in level.items()},
        "best": {seed: loss - 0.5 + shaken[seed] for seed, loss in level.items()},
        "worst": {seed: loss + 0.5 + shaken[4 - seed] for seed, loss in level.items()},
    }
    assert placed(values) == {"a": (2, 3), "b": (2, 3), "best": (1, 1), "worst": (4, 4)}
    assert placed(values, higher=True) == {"a": (2, 3), "b": (2, 3), "best": (4, 4), "worst": (1, 1)}
    few = {name: {seed: found[seed] for seed in (0, 1)} for name, found in values.items()}
    assert set(placed(few).values()) == {(1, 4)}


def test_what_is_better_than_the_baseline_is_better_than_what_is_worse():
    """Between these two themselves too few seeds are shared."""
    level = dict.fromkeys(range(10), 2.0)
    up = {seed: 1.0 + 0.01 * seed for seed in range(5)}
    down = {seed: 3.0 + 0.01 * seed for seed in range(5, 10)}
    assert placed({"a": level, "up": up, "down": down}) == {"a": (2, 2), "up": (1, 1), "down": (3, 3)}


def test_places_of_equals_differ_in_one_comparison_of_twenty():
    random = np.random.default_rng(9)
    false = 0
    for _ in range(200):
        drawn = {name: losses(random.normal, 5, np.zeros(5), 0.01) for name in "abcd"}
        false += any(place != (1, 4) for place in placed(drawn, share=0).values())
    assert false <= stats.binom.ppf(0.999, 200, 2 * LEVEL)


@pytest.mark.parametrize(
    ("speed", "sure", "cheaper"),
    [
        ((0.8, 0.9, 0.99), True, True),
        ((0.8, 0.9, 1.0), False, False),
        ((0.97, 0.985, 0.99), True, False),
        ((1.0, 1.1, 1.2), False, False),
        ((1.01, 1.1, 1.2), True, False),
        (None, False, False),
    ],
)
def test_what_takes_less_time_is_reported_where_the_whole_interval_says_so(speed, sure, cheaper):
    row = SimpleNamespace(speed=speed and SimpleNamespace(low=speed[0], median=speed[1], high=speed[2]))
    assert (advice.is_sure(row), advice.is_cheaper(row)) == (sure, cheaper)


@pytest.mark.parametrize(("mean", "deviation", "margin"), [(0.5, 0.4, 0.01), (0.001, 0.02, 0.01), (0.1, 0.3, 0.0)])
def test_so_many_seeds_decide_four_times_in_five_if_the_difference_is_the_one_that_was_seen(mean, deviation, margin):
    seen = np.array([-1.0, 0.0, 1.0]) * deviation + mean
    needed = int(findings.seeds_needed(seen, margin))
    random, decided = np.random.default_rng(3), 0
    for _ in range(400):
        base = dict(enumerate(np.full(needed, 1.0)))
        other = dict(enumerate(1.0 + random.normal(mean, deviation, needed)))
        equal = findings.equivalence(other, base, margin) <= LEVEL
        decided += equal or findings.compare_pairs(other, base)[1] <= LEVEL
    assert 0.72 <= decided / 400 <= 0.92, (needed, decided)


@pytest.mark.parametrize("level", [0.05, 0.2])
def test_the_interval_of_a_median_leaves_half_the_level_on_either_side(level):
    """By the binomial law: one more value on a side would leave too much there."""
    widths = []
    for count in range(1, 30):
        low, high = interval_of_median([float(value) for value in range(count, 0, -1)], level)
        cut = 0 if low == -math.inf else round(low)
        assert high == (count + 1 - cut if cut else math.inf)
        assert cut == 0 or stats.binom.cdf(cut - 1, count, 0.5) <= level / 2
        assert stats.binom.cdf(cut, count, 0.5) > level / 2
        widths.append(cut)
    assert widths[-1] > 5
