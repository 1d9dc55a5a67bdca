"""Two choices crossed: planted interactions are found, none where there is none, and the rest is refused."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import synthetic_logs

import normkit as nk
from normkit import cli
from normkit.lab.plan import factor
from normkit.lab.plan.factor import FEW, GROWS, SAME, SHRINKS, TURNS
from normkit.lab.plan.variants import Variant, cross
from normkit.lab.report import conclusion, figures
from normkit.lab.report import factor as factor_words
from normkit.lab.report import page as report
from normkit.lab.report.tables import section_text

OPTIMIZERS, NORMS = ("adamw", "muon"), ("layernorm", "derf")
DRAWS = 20


def drawn(draw, gaps, seeds=5, noise=0.01):
    """Losses by cell and seed: each seed has its luck, each optimizer its level, each run its noise.

    ``gaps`` is by optimizer what every other norm has above layernorm.
    """
    chance = np.random.default_rng([draw, 31])
    luck = chance.normal(0, 0.05, seeds)
    cells = {}
    for at, (optimizer, of) in enumerate(gaps.items()):
        for norm, gap in {"layernorm": 0.0, **of}.items():
            cells[optimizer, norm] = dict(enumerate(2.5 - 0.2 * at + luck + gap + chance.normal(0, noise, seeds), 1))
    return cells


def words(gaps, **given):
    return [
        {(one.first[1], one.second[1]): one.word for one in factor.interactions(drawn(draw, gaps, **given), REFERENCE)}
        for draw in range(DRAWS)
    ]


REFERENCE = ("adamw", "layernorm")


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [(0.02, 0.08, GROWS), (0.08, 0.02, SHRINKS), (0.05, -0.04, TURNS), (-0.02, -0.08, GROWS)],
)
@pytest.mark.parametrize("seeds", [5, 12])
def test_a_planted_interaction_is_found_in_18_of_20_draws(before, after, word, seeds):
    seen = words({"adamw": {"derf": before}, "muon": {"derf": after}}, seeds=seeds)
    assert sum(one["muon", "derf"] == word for one in seen) >= 18


def test_one_of_four_interactions_is_found_alone():
    gaps = {
        "adamw": {"derf": 0.02, "dyt": 0.05},
        "muon": {"derf": 0.09, "dyt": 0.05},
        "sgd": {"derf": 0.02, "dyt": 0.05},
    }
    seen = words(gaps, seeds=8)
    assert sum(one["muon", "derf"] == GROWS for one in seen) >= 18
    others = [[one[key] for key in one if key != ("muon", "derf")] for one in seen]
    assert {len(words) for words in others} == {3}
    assert sum(any(word != SAME for word in words) for words in others) <= 2


@pytest.mark.parametrize("gap", [0.0, 0.1])
@pytest.mark.parametrize("seeds", [5, 12])
def test_of_20_draws_of_no_interaction_at_most_one_is_found(gap, seeds):
    gaps = {name: {"derf": gap, "dyt": 2 * gap} for name in ("adamw", "muon", "sgd")}
    seen = words(gaps, seeds=seeds, noise=0.03)
    assert sum(any(word != SAME for word in one.values()) for one in seen) <= 1


def test_the_numbers_are_those_of_the_gaps_by_hand():
    cells = {
        ("adamw", "layernorm"): {1: 2.0, 2: 2.1, 3: 1.9, 4: 2.0},
        ("adamw", "derf"): {1: 2.1, 2: 2.2, 3: 2.0, 4: 2.1},
        ("muon", "layernorm"): {1: 1.5, 2: 1.6, 3: 1.4, 4: 1.5},
        ("muon", "derf"): {1: 1.8, 2: 1.91, 3: 1.7, 4: 1.79, 5: 1.0},
    }
    (one,) = factor.interactions(cells, REFERENCE)
    assert (one.first, one.second) == (("adamw", "muon"), ("layernorm", "derf"))
    assert one.before.mean == pytest.approx(0.1)
    assert one.after.mean == pytest.approx(0.3)
    assert one.change.mean == pytest.approx(0.2)
    assert one.change.count == 4
    assert one.p == pytest.approx(2 / math.comb(8, 4))
    assert one.word == GROWS


def test_p_counts_every_exchange_within_seeds_and_draws_some_of_many():
    chance = np.random.default_rng(3)
    luck = chance.normal(0, 1, 10)
    before, after = luck + chance.normal(0, 0.1, 10), luck + chance.normal(0.04, 0.1, 10)
    apart = [abs(sum(s * d for s, d in zip(signs, after - before, strict=True))) for signs in SIGNS]
    exact = np.mean(np.array(apart) >= abs((after - before).sum()) - 1e-12)
    assert 0.004 < exact < 0.5
    assert factor.permutation_test(before, after) == pytest.approx(exact)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factor, "EXACT", 0)
        assert factor.permutation_test(before, after) == pytest.approx(exact, abs=0.01)


SIGNS = list(itertools.product((1, -1), repeat=10))


def test_p_counts_every_deal_where_exchanges_are_too_few():
    chance = np.random.default_rng(3)
    before, after = chance.normal(0, 1, 5), chance.normal(0.7, 1, 5)
    both = np.concatenate([before, after])
    deals = [
        abs(both[list(deal)].mean() - np.delete(both, deal).mean()) for deal in itertools.combinations(range(10), 5)
    ]
    exact = np.mean(np.array(deals) >= abs(before.mean() - after.mean()) - 1e-12)
    assert factor.permutation_test(before, after) == pytest.approx(exact)


def test_luck_that_a_seed_brings_to_both_gaps_hides_nothing():
    """A norm's gap varies over seeds by a tenth, with either optimizer alike; the optimizer adds a hundredth."""
    chance = np.random.default_rng(5)
    own = chance.normal(0, 0.1, 8)
    before, after = own + chance.normal(0, 0.002, 8), own + 0.01 + chance.normal(0, 0.002, 8)
    assert factor.permutation_test(before, after) == 2 / 2**8
    assert factor.permutation_test(before[:5], after[:5]) > 0.05


def test_three_seeds_are_never_enough_and_two_are_not_tested():
    few = {key: {seed: value for seed, value in of.items() if seed <= 3} for key, of in drawn(0, WIDE).items()}
    (one,) = factor.interactions(few, REFERENCE)
    assert one.word == SAME
    assert one.p == pytest.approx(2 / math.comb(6, 3))
    less = {key: {seed: value for seed, value in of.items() if seed <= 2} for key, of in few.items()}
    (one,) = factor.interactions(less, REFERENCE)
    assert one.word == FEW
    assert math.isnan(one.p)


WIDE = {"adamw": {"derf": 0.0}, "muon": {"derf": 0.5}}


def test_other_choices_that_are_crossed_as_well_are_averaged():
    variants = cross(optimizer=OPTIMIZERS, norm=NORMS, placement=["pre-norm", "peri-norm"])
    factor.require(("optimizer", "norm"), variants)
    cells = factor.cells(("optimizer", "norm"), variants)
    assert {key: len(names) for key, names in cells.items()} == dict.fromkeys(itertools.product(OPTIMIZERS, NORMS), 2)
    values = {variant.name: {1: float(at)} for at, variant in enumerate(variants)}
    assert factor.means(cells, values)["adamw", "layernorm"] == {1: 0.5}


@pytest.mark.parametrize(
    ("words", "given", "message"),
    [
        (["norm"], ["norm"], "{factor} takes two choices, such as optimizer norm, not norm"),
        (["norm", "norm"], ["norm", "norm"], "{factor} names norm twice; two different choices are crossed"),
        (
            ["norms", "optimizer"],
            ["norms", "optimizer"],
            "{factor} 'norms' is no choice of a variant; choices are norm, placement, attention, linear, weight, flow, "
            "optimizer, loss, aggregation",
        ),
        (
            ["optimizer", "norm"],
            ["optimizer", "norm"],
            "{factor} optimizer: all variants have adamw; give several names to {optimizer}",
        ),
    ],
)
def test_a_factor_that_cannot_be_is_refused_as_it_was_typed(words, given, message, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert cli.main(["compare", "--norm", "layernorm", "dyt", "--factor", *words, "--out", out]) == 2
    assert message.format(factor="--factor", optimizer="--optimizer") in capsys.readouterr().err
    with pytest.raises(ValueError) as refused:
        nk.compare(norms=["layernorm", "dyt"], factor=given, out=out)
    assert str(refused.value) == message.format(factor="factor", optimizer="optimizers")


def test_a_cell_that_is_missing_is_named():
    variants = cross(optimizer=OPTIMIZERS, norm=NORMS)
    with pytest.raises(ValueError, match="there is no variant with optimizer muon and norm derf that has all else in"):
        factor.require(("optimizer", "norm"), variants[:3])
    other = [*variants[:3], Variant("odd", norm="derf", optimizer="muon", steps=7)]
    with pytest.raises(ValueError, match="that has all else in common with the others"):
        factor.require(("optimizer", "norm"), other)


def loaded(folder, variants, gains, **given):
    """A comparison of crossed variants, of logs that were made up."""
    synthetic_logs.comparison(folder, gains, factor=["optimizer", "norm"], **given)
    plan = json.loads((folder / "plan.json").read_text())
    plan["variants"] = [dataclasses.asdict(variant) for variant in variants]
    (folder / "plan.json").write_text(json.dumps(plan))
    return report.load(folder)


def test_a_cell_whose_runs_have_failed_is_named_and_not_called_too_few_seeds(tmp_path):
    variants = cross(optimizer=OPTIMIZERS, norm=NORMS)
    gains = {variant.name: 0.0 for variant in variants}
    crashed = {("muon+derf", seed): "crashed" for seed in (1, 2, 3, 4)}
    comparison = loaded(tmp_path, variants, gains, seeds=4, statuses=crashed)
    rows = report.summary(tmp_path)
    words = " ".join(conclusion.answer(comparison, rows))
    assert "Whether derf's gap to layernorm depends on adamw and muon cannot be seen: muon+derf failed." in words
    assert "Too few seeds" not in words
    assert factor_words.headline(comparison) == ""
    assert "too few" not in section_text(factor_words.section(comparison, rows))


@pytest.mark.parametrize(
    "seeds, more",
    [
        (3, "; fewer than 4 seeds cannot tell."),
        (4, "; from 6 seeds on gaps are compared seed by seed."),
        (6, "."),
    ],
)
def test_where_nothing_was_found_it_is_said_from_how_many_seeds_on_more_could_be(seeds, more, tmp_path):
    variants = cross(optimizer=OPTIMIZERS, norm=NORMS)
    comparison = loaded(tmp_path, variants, {variant.name: 0.0 for variant in variants}, seeds=seeds)
    [sentence] = factor_words.sentences(comparison, report.summary(tmp_path))
    assert sentence.startswith("derf's gap to layernorm was not found to differ: ")
    assert sentence.endswith(f", {seeds} seeds){more}")


@pytest.mark.parametrize(
    "dyt, words",
    [
        (0.0, "derf's gap to layernorm grows from adamw to muon"),
        (0.2, "derf's gap to layernorm grows from adamw to muon, and 1 gap more"),
    ],
)
def test_the_headline_has_the_surest_change_and_the_number_of_others(dyt, words, tmp_path):
    variants = cross(optimizer=OPTIMIZERS, norm=("layernorm", "derf", "dyt"))
    gains = dict.fromkeys((variant.name for variant in variants), 0.0) | {"muon+derf": 0.3, "muon+dyt": dyt}
    comparison = loaded(tmp_path, variants, gains, seeds=8)
    assert factor_words.headline(comparison) == words
    table = section_text(factor_words.section(comparison, report.summary(tmp_path))).splitlines()
    assert table[3].split() == ["variant", "adamw", "muon", "change", "finding", "p"]
    assert (
        table[5].partition("grows")[0] == "   derf     -0.4% ± 0.8  -16.4% ± 0.5  -16.0% ± 1.0  "
    )  # and words to the left


@pytest.mark.parametrize(
    "optimizers, title, names",
    [(OPTIMIZERS, "with muon", ["derf"]), ((*OPTIMIZERS, "lion"), "with the other", ["derf, muon", "derf, lion"])],
)
def test_a_row_is_a_norm_and_of_several_other_optimizers_which(optimizers, title, names, tmp_path):
    variants = cross(optimizer=optimizers, norm=NORMS)
    comparison = loaded(tmp_path, variants, {variant.name: 0.0 for variant in variants}, seeds=3)
    section = factor_words.section(comparison, report.summary(tmp_path))
    assert [column.title for column in section.columns][:2] == ["with adamw", title]
    assert [line.variant for line in section.lines] == names


def test_the_picture_has_a_line_for_each_second_choice_with_the_means_of_its_cells(tmp_path):
    variants = cross(optimizer=OPTIMIZERS, norm=NORMS)
    gains = {variant.name: 0.1 * at for at, variant in enumerate(variants)}
    synthetic_logs.comparison(tmp_path, gains, seeds=3, factor=["optimizer", "norm"])
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["variants"] = [dataclasses.asdict(variant) for variant in variants]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    comparison = report.load(tmp_path)
    cells = factor_words.cells_of(comparison)
    lines = {
        trace["name"]: trace for trace in figures.crossed_means(comparison)["data"] if trace.get("fill") != "toself"
    }
    assert set(lines) == set(NORMS)
    for norm, line in lines.items():
        means = [np.mean([*cells[optimizer, norm].values()]) for optimizer in OPTIMIZERS]
        assert line["y"] == pytest.approx(means)
    assert len({value for line in lines.values() for value in line["y"]}) == 4
