"""The statistics keep what they promise: against scipy's own tests, and over many pretended comparisons."""

import math

import numpy as np
import pytest

from normkit.lab import findings
from normkit.lab.findings import BETTER, FEW, LEVEL, SAME, WORSE

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
    difference, p = findings.paired(a, b)
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


def test_the_same_numbers_are_no_difference():
    same = {1: 2.0, 2: 2.1, 3: 1.9}
    found = findings.findings({"a": same, "b": dict(same)}, "a")["b"]
    assert (found.word, found.difference.mean, found.p) == (SAME, 0.0, 1.0)


def test_rounding_in_one_direction_is_no_difference():
    base = {seed: 2.0 + seed for seed in range(5)}
    found = findings.findings({"a": base, "b": {seed: loss * (1 + 2**-20) for seed, loss in base.items()}}, "a")["b"]
    assert (found.word, found.p) == (SAME, 1.0)


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
def test_identical_variants_are_told_apart_in_one_comparison_of_twenty(seeds, variants, kind):
    """Any false finding among a comparison's variants counts; of 200 comparisons, what a binomial at 5 % allows."""
    random = np.random.default_rng([seeds, variants])
    draw = random.normal if kind == "normal" else lambda: random.standard_t(4)
    repetitions, false = 200, 0
    for _ in range(repetitions):
        luck = random.normal(0, 0.1, seeds)
        drawn = {str(name): losses(draw, seeds, luck, 0.01) for name in range(variants + 1)}
        false += any(found.word != SAME for found in findings.findings(drawn, "0").values())
    assert false <= stats.binom.ppf(0.999, repetitions, LEVEL)


def test_without_the_correction_they_would_not_be():
    random = np.random.default_rng(3)
    false = 0
    for _ in range(200):
        drawn = [losses(random.normal, 5, np.zeros(5), 0.01) for _ in range(7)]
        false += any(findings.paired(variant, drawn[0])[1] < LEVEL for variant in drawn[1:])
    assert false > stats.binom.ppf(0.999, 200, LEVEL)


def test_a_variant_that_must_win_is_found():
    """Ten times the noise with five seeds: the test's power is above 0.999 even after the correction for three."""
    random = np.random.default_rng(4)
    for _ in range(50):
        luck = random.normal(0, 0.1, 5)
        drawn = {name: losses(random.normal, 5, luck, 0.01) for name in "abc"}
        drawn["winner"] = losses(random.normal, 5, luck, 0.01, gain=0.1)
        assert findings.findings(drawn, "a")["winner"].word == BETTER
