"""What a comparison must not get wrong silently: who sees which data, and which runs count."""

import pytest
import synthetic_logs
import torch
from torch.utils.data import TensorDataset

from normkit.lab.plan import data, samples
from normkit.lab.plan.plan import Plan
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant, unique
from normkit.lab.report import page as report
from normkit.lab.training import runs


def images(count=40):
    return data.Images(torch.arange(count).float().reshape(-1, 1, 1, 1), torch.arange(count) % 2, 4, "here")


def own(count=40):
    """A data set of a user, of which 4 samples are held out, as of the images."""
    dataset = TensorDataset(torch.arange(count).float(), torch.arange(count) % 2)
    return samples.BySample(samples.recipe_of(dataset, 4), None, 2, "here")


def order(seen, seed, steps=range(1, 10)):
    return torch.cat([seen.train(seed, step)[0].flatten() for step in steps]).tolist()


@pytest.mark.parametrize("made", [images, own])
def test_every_seed_sees_the_samples_in_an_order_of_its_own_and_so_does_every_epoch(made):
    first, other = order(made(), 1), order(made(), 2)
    assert len(set(first)) == 36
    assert sorted(first) == sorted(other)
    assert first != other
    assert order(made(), 1, range(10, 19)) not in (first, other)


@pytest.mark.parametrize("made", [images, own])
def test_the_order_of_samples_does_not_depend_on_who_was_served_before(made):
    seen = made()
    order(seen, 1)
    assert order(seen, 2) == order(made(), 2)
    assert order(seen, 1, range(10, 19)) == order(made(), 1, range(10, 19))
    assert order(seen, 1) == order(made(), 1)


def test_every_position_of_a_text_is_drawn_the_first_and_the_last_too():
    tokens = data.Tokens(torch.arange(200), 4, 16, 2, "here")
    drawn = torch.cat([tokens.train(1, step) for step in range(300)])
    assert (drawn.min(), drawn.max()) == (0, 179)
    held_out = torch.cat(tokens.validation())
    assert (held_out.min(), held_out.max()) == (180, 199)


def test_no_two_seeds_and_steps_draw_the_same_numbers():
    """Torch's generator takes the last 32 bits of what it is seeded with."""
    pairs = [(seed, step) for seed in range(25) for step in range(2000)]
    seeds = [data.generator(*pair).initial_seed() % 2**32 for pair in [*pairs, *((seed,) for seed in range(25))]]
    assert len(set(seeds)) == len(seeds)


def test_the_seed_of_the_search_is_none_of_those_that_count():
    plan = Plan(Settings(steps=10, seeds=30), (Variant("a"),), "a")
    trials, results = [], {}
    while (waiting := runs.ready(plan, results))[0].phase == "search":
        trials += waiting
        results |= {run.name: {"status": "done", "final_loss": abs(run.lr - 0.003)} for run in waiting}
    finals = waiting
    assert {run.phase for run in trials} == {"search"}
    assert {run.phase for run in finals} == {"final"}
    assert len({run.seed for run in finals}) == 30
    assert not {run.seed for run in trials} & {run.seed for run in finals}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"threads": 2}, "threads: 1 there, 2 here"),
        ({"precision": "bf16"}, "precision: 'no' there, 'bf16' here"),
        ({"eval_batches": 7}, "eval_batches: 5 there, 7 here"),
        ({"warmup": 0.1}, "warmup: 0.2 there, 0.1 here"),
    ],
)
def test_a_folder_is_not_gone_on_with_under_settings_that_change_a_number(changed, said, tmp_path):
    variants = (Variant("a"), Variant("b", norm="rmsnorm"))
    runs.open_folder(Plan(Settings(), variants, "a"), tmp_path, [])
    with pytest.raises(ValueError, match=said):
        runs.open_folder(Plan(Settings(**changed), variants, "a"), tmp_path, [])


def test_a_folder_is_not_gone_on_with_under_other_variants(tmp_path):
    variants = (Variant("a"), Variant("b", norm="rmsnorm"))
    runs.open_folder(Plan(Settings(), variants, "a"), tmp_path, [])
    with pytest.raises(ValueError, match="variant 'b': norm 'rmsnorm' there, 'dyt' here"):
        runs.open_folder(Plan(Settings(), (variants[0], Variant("b", norm="dyt")), "a"), tmp_path, [])
    with pytest.raises(ValueError, match="variant 'b': there, but not here"):
        runs.open_folder(Plan(Settings(), variants[:1], "a"), tmp_path, [])


@pytest.mark.parametrize(("one", "other"), [("Norm", "norm"), ("dyt:alpha=1", "dyt/alpha=1"), ("same", "same")])
def test_two_names_that_would_share_a_file_are_refused(one, other):
    with pytest.raises(ValueError, match="two variants have the name"):
        unique([Variant(one), Variant("between"), Variant(other)])


def row(folder, variant):
    return next(row for row in report.summary(folder) if row.variant == variant)


def test_a_search_of_one_rate_has_no_edge(tmp_path):
    synthetic_logs.write_plan(tmp_path, variants=("a",), seeds=1)
    synthetic_logs.write_run(tmp_path, synthetic_logs.run("a", 0, lr=0.01, phase="search"))
    synthetic_logs.write_run(tmp_path, synthetic_logs.run("a", 1, lr=0.01))
    assert row(tmp_path, "a").edge == ""
    synthetic_logs.write_run(tmp_path, synthetic_logs.run("a", 0, lr=0.001, phase="search"))
    assert row(tmp_path, "a").edge == "highest"


def ended(folder, seed, **end):
    start = {"event": "start", "variant": "a", "lr": 0.01, "seed": seed, "phase": "final"}
    synthetic_logs.write_run(folder, [start, {"event": "end", "status": "done", **end}])


def test_the_best_loss_is_that_of_runs_that_came_through(tmp_path):
    synthetic_logs.write_plan(tmp_path, variants=("a",), seeds=3)
    ended(tmp_path, 1, final_loss=2.0, best_loss=1.5)
    ended(tmp_path, 2, final_loss=2.0, best_loss=2.5)
    ended(tmp_path, 3, final_loss=None, best_loss=0.1, status="diverged")
    assert row(tmp_path, "a").best.mean == 2.0


@pytest.mark.parametrize("loss", [None, float("nan"), float("inf"), -float("inf"), "2.0"])
def test_a_loss_that_is_no_finite_number_does_not_count(loss, tmp_path):
    synthetic_logs.write_plan(tmp_path, variants=("a",), seeds=3)
    for seed, found in enumerate((1.0, 3.0, loss), 1):
        ended(tmp_path, seed, final_loss=found, best_loss=found)
    found = row(tmp_path, "a")
    assert (found.final.mean, found.final.count) == (found.best.mean, found.best.count) == (2.0, 2)


def test_a_trial_without_a_finite_loss_is_never_the_best():
    plan = Plan(Settings(steps=10, lrs=(0.1, 0.2, 0.3)), (Variant("a"),), "a")
    for loss in (None, float("nan"), float("inf")):
        ends = zip(runs.ready(plan, {}), (loss, 2.0, 3.0), strict=True)
        results = {run.name: {"status": "done", "final_loss": found} for run, found in ends}
        assert runs.best_rate(plan, plan.variants[0], results) == 0.2
