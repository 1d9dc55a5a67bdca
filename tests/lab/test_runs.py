"""The schedule: the same small search for each variant, then all seeds at its best rate."""

import dataclasses
import json
import math

import pytest
from helpers import command, train_here

from normkit.lab import logs
from normkit.lab.plan import optimizers
from normkit.lab.plan.plan import Plan, read_name
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant, cross, read_variants
from normkit.lab.report import exports, history, ranking
from normkit.lab.training import runs


def plan(**settings):
    return Plan(Settings(**{"steps": 10, "seeds": 3, **settings}), (Variant("a"), Variant("b", norm="rmsnorm")), "a")


def done(loss):
    return {"status": "done", "final_loss": loss}


def played(comparison, outcome):
    """Carry a schedule through without training."""
    results, order = {}, []
    while waiting := runs.ready(comparison, results):
        order.append(waiting[0])
        results[waiting[0].name] = outcome(waiting[0])
    return order


def test_each_variant_gets_the_same_search_and_its_own_best_rate():
    best = {"a": 0.001, "b": 0.009}
    order = played(plan(trials=3), lambda run: done(abs(run.lr - best[run.variant.name])))
    trials = [r for r in order if r.phase == "search"]
    tried = {"a": (0.003, 0.009, 0.001), "b": (0.003, 0.009, 0.027)}
    assert [(r.variant.name, r.lr) for r in trials] == [(name, lr) for name in tried for lr in tried[name]]
    assert {(r.seed, r.steps) for r in trials} == {(0, 10)}
    finals = [(r.variant.name, r.lr, r.seed) for r in order if r.phase == "final"]
    assert sorted(finals) == [("a", 0.001, s) for s in (1, 2, 3)] + [("b", 0.009, s) for s in (1, 2, 3)]
    assert finals[-1][2] == 3


def test_a_log_of_before_a_setting_is_of_the_run_that_has_its_default():
    comparison = plan()
    run = runs.ready(comparison, {})[0]
    recipe = run.recipe(comparison.settings)
    older = {**recipe, "settings": {k: v for k, v in recipe["settings"].items() if k != "clip"}}
    start = {"event": "start", "variant": run.variant.name, "seed": run.seed, "lr": run.lr}
    logged = {name: [{**start, "recipe": one}] for name, one in (("now", recipe), ("before", older))}
    logged["other"] = [{**start, "recipe": {**older, "steps": 11}}]
    of_it = {name: runs.belongs(comparison, logs.Read(events, 0, False, True)) for name, events in logged.items()}
    assert of_it == {"now": True, "before": True, "other": False}


def rates_tried(best, trials=5, outcome=None):
    """The rates that a search tries where the loss grows with the distance from the best one, and the one it takes."""
    found = outcome or (lambda run: done(abs(math.log(run.lr / best))))
    one = Plan(Settings(steps=10, seeds=1, trials=trials), (Variant("a"),), "a")
    *trials, final = [run.lr for run in played(one, found)]
    return trials, final


@pytest.mark.parametrize(
    "best, tried",
    [
        (0.003, [0.003, 0.009, 0.001]),
        (0.01, [0.003, 0.009, 0.027]),
        (0.03, [0.003, 0.009, 0.027, 0.081]),
        (1.0, [0.003, 0.009, 0.027, 0.081, 0.243]),
        (0.0001, [0.003, 0.009, 0.001, 0.000333333, 0.000111111]),
    ],
)
def test_a_search_goes_on_until_its_best_rate_is_inside_or_its_budget_spent(best, tried):
    assert rates_tried(best) == (tried, min(tried, key=lambda lr: abs(math.log(lr / best))))


def test_a_search_knows_no_rate_before_all_its_trials_have_ended():
    one = plan()
    results = {run.name: done(1 / run.lr) for run in runs.ready(one, {}) if run.variant.name == "a"}
    last = max(results)
    del results[last]
    assert [run.name for run in runs.ready(one, results) if run.variant.name == "a"] == [last]
    assert runs.best_rate(one, one.variants[0], results) is None


def test_a_higher_rate_that_diverges_ends_the_search():
    def outcome(run):
        return {"status": "diverged"} if run.lr > 0.01 else done(1 / run.lr)

    assert rates_tried(None, outcome=outcome) == ([0.003, 0.009, 0.027], 0.009)


def test_where_all_rates_diverge_lower_ones_are_tried():
    def outcome(run):
        return {"status": "diverged"} if run.lr > 0.0002 else done(1.0)

    assert rates_tried(None, outcome=outcome)[1] == 0.000111111


def test_the_training_that_is_planned_grows_with_a_search():
    one = plan()
    assert runs.steps_in_all(one, {}) == 2 * (3 + 2)
    results = {run.name: done(1 / run.lr) for run in runs.ready(one, {})}
    assert runs.steps_in_all(one, results) == 2 * (3 + 3)


def test_each_variant_tries_all_decays_at_its_best_rate_and_keeps_the_best_of_both():
    best = {"a": (0.003, 0.1), "b": (0.009, 0.01)}

    def outcome(run):
        lr, decay = best[run.variant.name]
        return done(abs(math.log(run.lr / lr)) + abs(math.log((run.decay or 0.3) / decay)))

    order = played(plan(trials=3, decays=(0.01, 0.1, 0.3)), outcome)
    for name, (lr, decay) in best.items():
        tries = [run for run in order if run.variant.name == name and run.phase == "search"]
        assert [run.decay for run in tries] == [None] * 3 + [0.01, 0.1, 0.3], "as many trials for each"
        assert {run.lr for run in tries[3:]} == {lr}
        finals = [run for run in order if run.variant.name == name and run.phase == "final"]
        assert {(run.lr, run.decay) for run in finals} == {(lr, decay)}
    assert order[-1].name.endswith("--lr0.009--wd0.01--seed3")


def test_decays_that_diverge_are_not_chosen_and_one_needs_no_search():
    def outcome(run):
        return {"status": "diverged"} if run.decay == 0.1 else done(run.decay or 1.0)

    order = played(plan(lrs=(0.01,), decays=(0.1, 0.3)), outcome)
    assert {run.decay for run in order if run.phase == "final"} == {0.3}
    order = played(plan(lrs=(0.01,), decays=(0.2, 0.2)), outcome)
    assert {(r.decay, r.phase) for r in order} == {(0.2, "final")}
    order = played(plan(lrs=(0.01,), decays=(0.2,)), outcome)
    assert {(run.decay, run.phase) for run in order} == {(0.2, "final")}
    order = played(plan(lrs=(0.01,), decays=(0.1, 0.2)), lambda run: {"status": "diverged"})
    assert {run.phase for run in order} == {"search"}


def test_a_run_is_trained_with_its_decay_and_its_recipe_says_so():
    with_decay = runs.final(plan(), Variant("a"), 0.01, 1, 0.3)
    assert with_decay.recipe(Settings())["decay"] == 0.3
    assert "decay" not in runs.final(plan(), Variant("a"), 0.01, 1).recipe(Settings())
    assert read_name(with_decay.name, ["a"])["decay"] == 0.3


def test_a_decay_that_is_said_twice_is_named():
    twice = Plan(Settings(steps=2, decays=(0.1, 0.2)), (Variant("a", optimizer="adamw:weight_decay=0.1"),), "a")
    with pytest.raises(ValueError, match="both say the weight decay of 'a'"):
        runs.check(twice)


def test_one_rate_needs_no_search():
    assert [r.lr for r in runs.ready(plan(lrs=(0.1, 0.1, 0.3)), {})] == [0.1, 0.3] * 2
    assert {(r.lr, r.phase) for r in played(plan(lrs=(0.01,)), lambda run: done(1.0))} == {(0.01, "final")}


def test_a_variant_that_fails_at_every_rate_gets_no_seeds_and_the_others_do():
    order = played(plan(), lambda run: {"status": "diverged"} if run.variant.name == "a" else done(abs(run.lr - 0.003)))
    assert [r.phase for r in order if r.variant.name == "a"] == ["search"] * 5
    assert [r.phase for r in order if r.variant.name == "b"] == ["search"] * 3 + ["final"] * 3


def test_a_rate_that_diverges_is_not_chosen():
    order = played(plan(), lambda run: {"status": "crashed"} if run.lr > 0.004 else done(-run.lr))
    assert {r.lr for r in order if r.phase == "final"} == {0.003}


def test_the_folder_is_found_again_only_for_the_same_comparison(tmp_path):
    runs.open_folder(plan(), tmp_path, ["normkit", "compare"])
    runs.open_folder(plan(workers=7, engine="ray"), tmp_path, [])
    with pytest.raises(ValueError, match=r"another comparison \(steps: 10 there, 9 here\).*--out.*--fresh"):
        runs.open_folder(plan(steps=9), tmp_path, [])
    written = json.loads((tmp_path / "plan.json").read_text())
    assert written["command"] == ["normkit", "compare"]
    assert written["variants"][1] == dataclasses.asdict(Variant("b", norm="rmsnorm"))


def test_fresh_deletes_what_a_comparison_wrote_and_nothing_else(tmp_path):
    runs.open_folder(plan(), tmp_path, [])
    (tmp_path / "runs" / "a--lr1--seed1.jsonl").write_text("{}")
    (tmp_path / "mine.txt").write_text("keep")
    (tmp_path / "speed.json").write_text("times of what was there")
    runs.open_folder(plan(steps=11), tmp_path, [], fresh=True)
    assert not list((tmp_path / "runs").iterdir())
    assert not (tmp_path / "speed.json").exists()
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_fresh_keeps_the_files_of_a_project_that_no_comparison_wrote(tmp_path):
    own = ("plan.json", "plan.json.bak", "runs/mine.jsonl", "checkpoints/my-own-model.pt")
    for name in own:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "checkpoints" / "epoch1").mkdir()
    runs.open_folder(plan(), tmp_path, [], fresh=True)
    assert (tmp_path / "plan.json.damaged").read_text() == "plan.json"
    assert all((tmp_path / name).read_text() == name for name in own[1:])
    runs.open_folder(plan(), tmp_path, [], fresh=True)
    assert (tmp_path / "plan.json.damaged").read_text() == "plan.json"
    assert all((tmp_path / name).read_text() == name for name in own[1:])


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", ["index.html", "speed.json", "times.json"])
def test_a_file_of_a_project_that_a_comparison_would_write_over_is_named(name, fresh, tmp_path):
    own = (name, "plan.json", "runs/mine.jsonl")
    for one in own:
        (tmp_path / one).parent.mkdir(exist_ok=True)
        (tmp_path / one).write_text(one)
    why = f"^{tmp_path / name} exists already, and is of no comparison; name another folder with --out$"
    with pytest.raises(ValueError, match=why):
        runs.open_folder(plan(), tmp_path, [], fresh=fresh)
    assert sorted(tmp_path.rglob("*")) == sorted([*(tmp_path / one for one in own), tmp_path / "runs"])
    assert all((tmp_path / one).read_text() == one for one in own)


def test_fresh_deletes_all_files_of_a_run_and_the_times_beside_them_where_the_plan_is_lost(tmp_path):
    name = runs.ready(plan(), {})[0].name
    folder = runs.Folder(tmp_path)
    folder.create()
    for ending in ("jsonl", "jsonl.damaged", "jsonl.shorter"):
        (folder.runs / f"{name}.{ending}").touch()
    for ending in ("pt", "pt.damaged", "pt.partial-0123abcd", "lock"):
        (folder.checkpoints / f"{name}.{ending}").touch()
    for path in (folder.report, folder.times, folder.speed):
        path.touch()
    runs.open_folder(plan(), tmp_path, [], fresh=True)
    assert {path.name for path in tmp_path.rglob("*")} == {"plan.json", "runs", "checkpoints"}


def test_interrupted_runs_have_not_ended_and_crashed_ones_may_be_tried_again(tmp_path):
    folder = runs.open_folder(plan(), tmp_path, [])
    for status in ("done", "interrupted", "crashed"):
        folder.log(status).write_text(json.dumps({"event": "end", "status": status}) + "\n")
    folder.log("cut").write_text('{"event": "start"}\n{"event": "st')
    assert set(runs.read_results(folder, plan())) == {"done", "crashed"}
    assert set(runs.read_results(folder, plan(), retry=True)) == {"done"}


def test_variants_are_read_from_yaml(tmp_path):
    path = tmp_path / "v.yaml"
    path.write_text("variants:\n  - {name: twin, norm: rmsnorm}\n  - {norm: dyt, placement: peri-norm}\n  - derf\n")
    assert [(v.name, v.norm) for v in read_variants(path)] == [
        ("twin", "rmsnorm"),
        ("dyt+peri-norm", "dyt"),
        ("derf", "derf"),
    ]
    path.write_text("norm: [layernorm, dyt]\nplacement: post-norm\n")
    assert [(v.name, v.placement) for v in read_variants(path)] == [("layernorm", "post-norm"), ("dyt", "post-norm")]
    path.write_text("variants: [{norm: dyt, speed: 3}]")
    with pytest.raises(ValueError, match="speed"):
        read_variants(path)
    path.write_text("variants: [dyt, dyt]")
    with pytest.raises(ValueError, match="two variants have the name 'dyt'"):
        read_variants(path)


def test_crosses_are_named_by_what_varies():
    assert [v.name for v in cross(norm=["dyt"], optimizer=["adamw", "sgd"])] == ["adamw", "sgd"]
    with pytest.raises(ValueError, match="a variant has no speed"):
        cross(speed=["1"])


def test_numbers_of_a_variant_are_read_and_checked(tmp_path):
    path = tmp_path / "v.yaml"
    path.write_text("variants: [{norm: dyt, steps: 5, lr: 0.1, warmup: 0, batch: 2}, {name: t, start: permuted}]")
    one, other = read_variants(path)
    assert (one.name, one.steps, one.lr, one.warmup, one.batch) == (
        "dyt+steps=5+lr=0.1+warmup=0+batch=2",
        5,
        0.1,
        0.0,
        2,
    )
    assert other == Variant("t", start="permuted")
    path.write_text("steps: [50, 100]")
    assert [(v.name, v.steps) for v in read_variants(path)] == [("steps=50", 50), ("steps=100", 100)]
    for wrong, said in (
        ("steps: 0", "steps must be at least 1, not 0"),
        ("steps: 1.5", "steps must be at least 1, not 1.5"),
        ("batch: many", "batch must be at least 1, not 'many'"),
        ("lr: 0", "lr must be above 0, not 0.0"),
        ("warmup: 1", "warmup must be a share of the run, from 0 to below 1, not 1.0"),
        ("start: late", "start must be one of own, permuted, not 'late'"),
    ):
        path.write_text(f"variants: [{{norm: dyt, {wrong}}}]")
        with pytest.raises(ValueError, match=said):
            read_variants(path)


def test_a_variants_own_steps_and_rate_are_those_of_its_runs():
    short, fixed = Variant("short", steps=5), Variant("fixed", lr=0.5)
    order = played(Plan(Settings(steps=10, seeds=1, trials=3), (short, fixed), "short"), lambda run: done(run.lr))
    assert {(r.steps, r.phase) for r in order if r.variant == short} == {(5, "search"), (5, "final")}
    assert [(r.lr, r.steps, r.phase) for r in order if r.variant == fixed] == [(0.5, 10, "final")]
    given = Settings(steps=None, seconds=9.0, batch=4, warmup=0.3)
    assert runs.length(Plan(given, (short, fixed), "short"), short) == (5, None)
    assert runs.length(Plan(given, (short, fixed), "short"), fixed) == (None, 9.0)
    assert given.of(Variant("b", batch=2)) == dataclasses.replace(given, batch=2)
    assert given.of(Variant("b", warmup=0.0)) == dataclasses.replace(given, warmup=0.0)


def test_a_twin_takes_the_rate_of_what_it_is_the_twin_of():
    twin = Variant("twin", norm="rmsnorm", start="permuted")
    one = Plan(Settings(steps=10, seeds=2, trials=3), (Variant("a"), Variant("b", norm="rmsnorm"), twin), "a")
    order = played(one, lambda run: done(abs(run.lr - (0.001 if run.variant.norm == "rmsnorm" else 0.009))))
    assert {(r.lr, r.phase) for r in order if r.variant == twin} == {(0.001, "final")}
    alone = Plan(Settings(steps=10, seeds=1, trials=3), (Variant("a"), twin), "a")
    assert len([r for r in played(alone, lambda run: done(run.lr)) if r.variant == twin and r.phase == "search"]) > 1


@pytest.mark.parametrize("metric, higher", [("accuracy", True), ("mine:score", True), ("mine:score", False)])
def test_the_rate_is_that_which_is_best_by_the_measure_that_was_named(metric, higher):
    key = "accuracy" if metric == "accuracy" else "metric"

    def outcome(run):
        return {"status": "done", "final_loss": run.lr, "final": {"loss": run.lr, key: run.lr}}

    order = played(plan(trials=3, metric=metric, higher=higher), outcome)
    assert {r.lr for r in order if r.phase == "final"} == {0.027 if higher else 0.001}


def until_decided(outcome, variants="bcd", seeds=12):
    made = (Variant("a"), *(Variant(name, norm="rmsnorm") for name in variants))
    given = Settings(steps=10, seeds=seeds, trials=1, until_decided=True)
    order = played(Plan(given, made, "a"), outcome)
    return {v.name: sorted(r.seed for r in order if r.variant == v) for v in made}


def test_seeds_are_added_for_what_is_not_decided_alone():
    def outcome(run):
        luck = 0.05 * math.sin(17 * run.seed)
        own = {"a": 0.0, "b": -0.5, "c": 0.0005 * math.sin(run.seed), "d": 0.2 * math.sin(5 * run.seed)}
        return done(2 + luck + own[run.variant.name])

    found = until_decided(outcome)
    assert found == {"a": [*range(1, 13)], "b": [1, 2, 3, 4], "c": [1, 2, 3, 4], "d": [*range(1, 13)]}
    assert until_decided(outcome, "bc") == {name: [1, 2, 3, 4] for name in "abc"}


def test_what_diverges_holds_up_nobody():
    def outcome(run):
        if (run.variant.name, run.seed) == ("b", 2):
            return {"status": "diverged"}
        return done(2 + (0.3 * math.sin(5 * run.seed) if run.variant.name == "d" else 0.0))

    found = until_decided(outcome)
    assert max(found["b"]) <= 4
    assert max(found["a"]) == max(found["d"]) == 12
    lost = until_decided(lambda run: {"status": "crashed"} if run.variant.name == "a" else done(1.0))
    assert max(map(max, lost.values())) == 4


def test_decays_are_trained_with_and_reported(tmp_path, monkeypatch):
    train_here(monkeypatch)
    used = []
    own = optimizers.make_optimizer
    monkeypatch.setattr(optimizers, "make_optimizer", lambda *args: (used.append(args[3]), own(*args))[1])
    words = ["--lr", "0.01", "--decay", "0.02,0.5", "--steps", "2", "--seeds", "1"]
    command(tmp_path, "--optimizer", "adamw", "lion", *words)
    assert {0.02, 0.5} <= set(used)
    comparison = history.load(tmp_path)
    rows = {row.variant: row for row in ranking.rank(comparison)}
    for name in ("adamw", "lion"):
        (final,) = comparison.final_runs(name)
        assert final.decay == rows[name].decay in (0.02, 0.5)
        assert comparison.search_runs(name) == [], "trials of decays are none of a rate"
    assert exports.records([*rows.values()])[0]["weight_decay"] in (0.02, 0.5)


def test_a_share_of_the_data_is_in_a_recipe_where_it_is_not_all():
    run = runs.final(plan(), Variant("a"), 0.01, 1)
    assert "share" not in run.recipe(Settings())["settings"]
    assert run.recipe(Settings(share=0.5))["settings"]["share"] == 0.5


def test_models_of_each_rung_are_built_before_a_ladder_but_longer_runs_are_of_the_same(monkeypatch):
    monkeypatch.setattr(runs.tasks, "check_variant", lambda variant, settings: 7)
    shapes = {of: Plan(Settings(ladder=(1, 2), ladder_of=of), (Variant("a"),), "a") for of in ("steps", "depth")}
    assert runs.check(shapes["steps"]) == {("a", 1): 7}
    assert runs.check(shapes["depth"]) == {("a", 1): 7, ("a", 2): 7}
