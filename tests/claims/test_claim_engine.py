"""The words of the engine: what leads to each, and which claims are refused."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import normkit as nk
from normkit.claims import engine, shelf
from normkit.claims.engine import FAILS, HOLDS, SPENT, UNDECIDED, UNTRIED
from normkit.claims.kinds import Identity, Measured, Trained, above, below
from normkit.claims.shelf import Entry, Result


def identity(measure=lambda seed: 0.0, breaks=lambda seed: 1.0, bound=1e-10, **options):
    options = {"says": "It is so.", "against": "where it is not", **options}
    return Identity("planted", measure=measure, bound=bound, breaks=breaks, **options)


def measured(measure, control=lambda seed: 0.0, wanted=None, **options):
    wanted = wanted or above(1.0)
    options = {"says": "It is so.", "against": "where it is not", **options}
    return Measured("planted", measure=measure, wanted=wanted, control=control, **options)


def judged(claim):
    entry = Entry("planted", "activation", claim.name, claim.kind, claim.says, claim)
    return engine.verdict(entry, engine.measured(claim))


def test_a_true_identity_holds_and_tells_both_numbers():
    verdict = judged(identity(lambda seed: seed * 1e-12, lambda seed: 2.0 + seed))
    assert (verdict.word, verdict.number, verdict.control) == (HOLDS, 9e-12, 2.0)
    assert (verdict.wanted, verdict.against, verdict.measured) == ("at most 1e-10", "where it is not", "error")


def test_a_planted_false_identity_does_not_hold_for_one_draw_of_ten():
    verdict = judged(identity(lambda seed: 1e-3 * (seed == 7)))
    assert (verdict.word, verdict.number) == (FAILS, 1e-3)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_that_is_none_does_not_hold(number):
    assert judged(identity(lambda seed: number)).word == FAILS
    assert judged(identity(lambda seed: number, bound=above(1.0), breaks=lambda seed: 0.0)).word == (
        FAILS if math.isnan(number) else HOLDS
    )


def test_a_control_that_passes_in_one_draw_leaves_it_undecided():
    verdict = judged(identity(breaks=lambda seed: float(seed != 3)))
    assert verdict.word == UNDECIDED
    assert verdict.why == "the measure is blind: the control (where it is not) passes too"


def test_a_measure_that_cannot_fail_is_refused():
    same = lambda seed: 0.0  # noqa: E731
    with pytest.raises(ValueError, match="the control is the measure itself"):
        identity(same, same)
    with pytest.raises(TypeError, match="breaks"):
        Identity("planted", says="It is so.", measure=same, bound=0.0, against="nothing")
    with pytest.raises(TypeError, match="functions of a seed"):
        identity(breaks=None)
    with pytest.raises(ValueError, match="against must say in words"):
        identity(against=" ")
    with pytest.raises(ValueError, match="rule must be one of"):
        measured(same, lambda seed: 1.0, rule="most")
    with pytest.raises(ValueError, match="2 draws are too few"):
        measured(same, lambda seed: 1.0, rule="mean", draws=2)


def test_the_mean_is_judged_by_its_interval():
    spread = [-1.0, 0.0, 1.0, -0.5, 0.5, 0.2, -0.2, 0.1, -0.1, 0.0]
    at = lambda mean, size: lambda seed: mean + size * spread[seed]  # noqa: E731
    options = {"rule": "mean", "wanted": above(1.0)}
    assert judged(measured(at(2.0, 0.1), **options)).word == HOLDS
    assert judged(measured(at(0.5, 0.1), **options)).word == FAILS
    assert judged(measured(at(1.1, 1.0), **options)).word == UNDECIDED
    assert judged(measured(at(1.1, 1.0), **options, null=0.0)).word == HOLDS  # its interval is above 0
    assert judged(measured(at(0.9, 1.0), **options, null=0.0)).word == UNDECIDED
    lower = {**options, "wanted": below(1.0), "control": lambda seed: 9.0}
    assert [judged(measured(at(mean, 0.1), **lower)).word for mean in (0.0, 2.0)] == [HOLDS, FAILS]
    # two-sided 95 % and 80 % of a t with 9 degrees of freedom: 2.262 and 0.883
    error = torch.tensor(spread, dtype=torch.float64).std().item() / math.sqrt(10)
    assert judged(measured(at(1.1, 1.0), **options)).least == pytest.approx((2.2622 + 0.8834) * error, rel=1e-4)


def test_the_median_is_judged_by_itself():
    numbers = [3.0, 0.1, 5.0, 2.0, 0.2]
    verdict = judged(measured(numbers.__getitem__, rule="median", draws=5))
    assert (verdict.word, verdict.number) == (HOLDS, 2.0)
    assert judged(measured(numbers.__getitem__, rule="median", draws=5, wanted=above(2.5))).word == FAILS


def test_what_a_small_model_stands_for_is_said_at_this_scale():
    assert judged(measured(lambda seed: 2.0, reach="proxy")).spoken == "holds at this scale"
    assert judged(measured(lambda seed: 2.0)).spoken == "holds"


def test_draws_are_seeded_and_the_callers_random_numbers_stay():
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    draw = lambda seed: torch.rand(()).item()  # noqa: E731
    results = [engine.measured(identity(draw, lambda seed: 2 + draw(seed))) for _ in range(2)]
    assert results[0][:2] == results[1][:2]
    assert [x + 2 for x in results[0].numbers] == results[0].control
    assert torch.equal(torch.rand(3), wanted)


def test_after_the_budget_nothing_is_begun():
    verdicts = engine.verdicts(shelf.claims_of("rmsnorm"), run=True, budget=-1.0)
    assert {verdict.word for verdict in verdicts} == {UNTRIED}
    assert verdicts[0].why == SPENT
    assert engine.verdicts(shelf.claims_of("rmsnorm"), budget=-1.0)[0].word == HOLDS  # it is stored


@pytest.mark.parametrize("rule", ["mean", "within"])
def test_numbers_that_are_none_leave_a_claim_undecided(rule):
    verdict = judged(measured(lambda seed: math.nan if seed else 2.0, draws=4, rule=rule))
    assert verdict.word == UNDECIDED
    assert verdict.chance == 1.0


SHARED = ("name", "says", "measure", "against", "number", "draws", "source")


def test_results_are_written_and_read_and_those_for_another_bound_are_not(tmp_path, monkeypatch):
    entry = shelf.claims_of("rmsnorm")[0]
    kept = Result([1e-17, 2.5e-16], [0.5, math.inf], 0.25)
    [path] = shelf.store([(entry, kept)], tmp_path)
    about = json.loads(path.read_text())
    assert (about["normkit"], about["torch"]) == (nk.__version__, torch.__version__)
    monkeypatch.setattr(shelf, "RESULTS", tmp_path)
    shelf._room.cache_clear()
    try:
        assert shelf.stored(entry) == kept
        other = Identity(
            **{name: getattr(entry.claim, name) for name in SHARED}, bound=1e-9, breaks=entry.claim.control
        )
        assert shelf.stored(entry._replace(claim=other)) is None
        shelf.store([(shelf.claims_of("layernorm")[0], kept)], tmp_path)
        assert shelf.stored(entry) == kept  # another method's do not replace it
    finally:
        shelf._room.cache_clear()


def test_claims_are_of_methods_and_are_not_imported_with_the_package():
    assert set(shelf.places()) - set(nk.methods()) == {"merge-statistics"}
    for method, room in shelf.places().items():
        assert method == "merge-statistics" or nk.card(method).room == room
    words = "import sys, normkit; print([name for name in sys.modules if name.startswith('normkit.claims')])"
    assert subprocess.run([sys.executable, "-c", words], capture_output=True, text=True).stdout.strip() == "[]"


def test_every_claim_that_is_written_has_a_stored_result_and_every_other_a_reason():
    for entry in shelf.every():
        if entry.claim is None:
            assert entry.why.partition(": ")[0] in shelf.NEEDS.values()
            assert entry.why.partition(": ")[2]
        else:
            assert shelf.stored(entry) is not None, f"{entry.method}: normkit claim {entry.method} --run"


def test_a_method_is_known_by_its_other_names_and_an_unknown_one_gets_the_nearest():
    assert shelf.claims_of("LlamaRMSNorm") == shelf.claims_of("rmsnorm")
    with pytest.raises(ValueError, match="did you mean 'rmsnorm'"):
        shelf.claims_of("rmsnrom")
    with pytest.raises(ValueError, match="no claim of lamb's paper is in the list"):
        shelf.claims_of("lamb")


def test_a_file_of_results_that_was_cut_is_named(tmp_path, monkeypatch):
    whole = (shelf.RESULTS / "probe.json").read_bytes()
    (tmp_path / "probe.json").write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr(shelf, "RESULTS", tmp_path)
    shelf._room.cache_clear()
    with pytest.raises(ValueError, match=r"probe\.json is damaged"):
        nk.claim("shuffling-distortion")
    shelf._room.cache_clear()


SPREAD = [-1.0, 0.0, 1.0, -0.5, 0.5, 0.2, -0.2, 0.1, -0.1, 0.0]


def within(mean, size, bound=1.0, control=9.0):
    numbers = [mean + size * x for x in SPREAD]
    return judged(measured(numbers.__getitem__, lambda seed: control, wanted=below(bound), rule="within"))


def test_as_good_as_is_two_one_sided_tests_and_no_difference_found_is_not_enough():
    assert [within(mean, 0.1).word for mean in (0.0, 0.8, -0.8)] == [HOLDS] * 3
    assert [within(mean, 0.1).word for mean in (1.2, -1.2)] == [FAILS] * 2
    assert [within(mean, 4.0).word for mean in (0.0, 1.2)] == [UNDECIDED] * 2  # nothing is seen, or excluded
    assert within(-0.8, 0.1).number == pytest.approx(0.8)
    assert within(0.0, 0.1, control=-0.5).word == UNDECIDED  # the control is within too
    numbers = np.array([0.5 + x for x in SPREAD])
    both = max(
        stats.ttest_1samp(numbers, edge, alternative=side).pvalue for edge, side in ((1, "less"), (-1, "greater"))
    )
    assert within(0.5, 1.0).chance == pytest.approx(both if both <= 0.05 else 1.0)
    assert within(0.5, 1.0).word == (HOLDS if both <= 0.05 else UNDECIDED)


def test_the_chance_of_a_word_is_that_of_a_t_test():
    numbers = [1.5 + x for x in SPREAD]
    options = {"rule": "mean", "wanted": above(1.0), "null": 0.0}
    held = judged(measured(numbers.__getitem__, lambda seed: -9.0, **options))
    assert (held.word, held.chance) == (HOLDS, pytest.approx(stats.ttest_1samp(numbers, 0.0).pvalue))
    small = [0.2 + x for x in SPREAD]
    failed = judged(measured(small.__getitem__, lambda seed: -9.0, **options))
    assert (failed.word, failed.chance) == (FAILS, pytest.approx(stats.ttest_1samp(small, 1.0).pvalue))
    open_ = judged(measured([0.9 + x for x in SPREAD].__getitem__, lambda seed: -9.0, **options))
    assert (open_.word, open_.chance) == (UNDECIDED, 1.0)
    assert math.isnan(judged(identity()).chance)


def test_a_table_keeps_what_benjamini_and_hochberg_keep_within_each_kind():
    chances = [0.001, 0.011, 0.02, 0.04, 0.041, 0.3, 1.0]
    kept = stats.false_discovery_control(chances) <= 0.05
    one = judged(measured([1.5 + x for x in SPREAD].__getitem__, rule="mean", wanted=above(1.0), null=0.0))
    table = [one._replace(chance=p, word=UNDECIDED if p == 1.0 else HOLDS) for p in chances]
    other = one._replace(kind="training", chance=0.04)
    exact = judged(identity())
    marked = engine.together([*table, other, exact])
    assert [not verdict.alone for verdict in marked[:6]] == kept[:6].tolist()
    assert [verdict.alone for verdict in marked[6:]] == [False, False, False]  # undecided; alone in its kind; exact
    assert marked[3].spoken == "holds (alone)"
    assert marked[0].spoken == "holds"


def trained(numbers, control=lambda seed: -9.0, **options):
    return Trained("planted", says="It is so.", measure=numbers.__getitem__, wanted=above(1.0), control=control,
                   against="its twin", draws=8, bed="planted", **options)  # fmt: skip


def test_of_planted_nulls_few_are_found_and_of_planted_effects_as_many_as_the_power_says(monkeypatch):
    monkeypatch.setattr(engine, "seeing", lambda bed: True)
    chance, size = np.random.default_rng(0), 2.5
    added = np.array([0.0] * 100 + [size] * 100)
    numbers = added[:, None] + chance.standard_normal((200, 24))
    verdicts = engine.together([judged(trained(own.tolist())) for own in numbers])
    kept = np.array([verdict.word == HOLDS and not verdict.alone for verdict in verdicts])
    assert kept[:100].sum() / kept.sum() <= 0.05
    assert all(verdict.word == HOLDS or verdict.alone for verdict in verdicts[100:])  # what one look missed, two saw
    edge = stats.t.ppf(1 - 0.05 / 4, 7)  # of the first look
    power = stats.nct.sf(edge, 7, size * 8**0.5)  # its mean is above 1 wherever its interval is above 0, nearly
    assert kept[100:].sum() >= 100 * power - 3 * (100 * power * (1 - power)) ** 0.5 - 1


def test_a_second_look_has_seeds_of_its_own_where_the_first_leaves_it_undecided():
    asked = []
    clear, unclear = ([mean + 3 * (seed % 2) for seed in range(24)] for mean in (5.0, -0.6))
    for numbers in (clear, unclear):
        claim = trained(numbers, control=lambda seed: asked.append(seed) or -9.0)
        engine.measured(claim)
    assert asked == [*range(8), *range(24)]
    assert len(engine.measured(replace(trained(unclear), further=0)).numbers) == 8


def test_each_of_two_looks_spends_half_of_five_percent():
    numbers = [1.1 + 0.85 * x for x in (-1.5, 1.5, -1.0, 1.0, -1.2, 1.2, -1.6, 1.6)]
    two, one = (engine.chance(trained(numbers, further=further), HOLDS, numbers) for further in (24, 0))
    assert two == 2 * one == pytest.approx(2 * stats.ttest_1samp(numbers, 0.0).pvalue)
    assert engine._judge(trained(numbers, further=0), numbers)[0] == HOLDS
    assert engine._judge(trained(numbers), numbers)[0] == UNDECIDED


def test_a_bed_that_did_not_see_what_is_known_decides_nothing(monkeypatch):
    numbers = [5.0 + 0.1 * x for x in range(8)]
    monkeypatch.setattr(engine, "seeing", lambda bed: False)
    verdict = judged(trained(numbers))
    assert (verdict.word, verdict.bed) == (UNDECIDED, "planted")
    assert verdict.why == "the bed planted is blind: it did not see what is known"
    monkeypatch.setattr(engine, "seeing", lambda bed: True)
    assert judged(trained(numbers)).spoken == "holds at this scale"
    with pytest.raises(ValueError, match="bed must name"):
        replace(trained(numbers), bed="")


def test_a_bed_is_seeing_where_all_that_is_known_is_stored_and_holds(monkeypatch):
    rows = {entry.name: Result([9.0 + 0.1 * x for x in range(8)], [0.0] * 8, 1.0) for entry in shelf.beds()}
    monkeypatch.setattr(shelf, "stored", lambda entry: rows.get(entry.name))
    assert engine.seeing("digits")
    assert not engine.seeing("unknown")
    kept = rows.pop("half")
    assert not engine.seeing("digits")
    rows["half"] = kept._replace(numbers=[0.0] * 8)
    assert not engine.seeing("digits")
