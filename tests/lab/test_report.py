"""The report tells what the logs say: whole logs, torn ones, and those of runs that failed."""

import csv
import dataclasses
import functools
import io
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import synthetic_logs

from normkit.lab.fit import page
from normkit.lab.plan import findings
from normkit.lab.plan.findings import BETTER, EQUAL, FEW, LIKELY_BETTER, LIKELY_WORSE, SAME, WORSE
from normkit.lab.plan.measures import Measure
from normkit.lab.report import factor, figures, history, ladder, ranking, tables
from normkit.lab.report import page as report
from normkit.lab.report.exports import csv_text
from normkit.lab.report.words import Scale, faster
from normkit.lab.training.speed import Ratio
from normkit.page import as_json

for package in ("scipy", "plotly", "rich", "jinja2"):
    pytest.importorskip(package)

GAINS = {"layernorm": 0.0, "rmsnorm": 0.0, "dyt": -0.3, "derf": 0.3}
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return synthetic_logs.comparison(tmp_path_factory.mktemp("whole"), GAINS, seeds=5)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Everything that can happen: a finding, divergence, a crash, an unfinished run and one that is not begun."""
    folder = tmp_path_factory.mktemp("mixed")
    gains = {"layernorm": 0.0, "derf": 0.3, "post-norm": 0.0, "<b>crashed</b>": 0.0, "slow": 0.0, "later": 0.0}
    synthetic_logs.comparison(folder, gains, seeds=4, statuses={("post-norm", seed): "diverged" for seed in (1, 3)})
    for path in [*folder.glob("runs/later*"), *folder.glob("runs/slow*seed[1-4]*"), *folder.glob("runs/_b_crashed*")]:
        path.unlink()
    for seed in range(1, 5):
        crash = {
            "event": "end",
            "status": "crashed",
            "error": "ValueError: no such </script> shape",
            "traceback": "in f",
        }
        (folder / "runs" / f"_b_crashed_b_--lr0.003--seed{seed}.jsonl").write_text(json.dumps(crash) + "\n")
    torn = synthetic_logs.write_run(folder, synthetic_logs.run("slow", 1, status="unfinished", until=90))
    torn.write_text(torn.read_text()[:-20])
    return folder


def row_of(folder, variant):
    return next(row for row in report.summary(folder) if row.variant == variant)


def test_the_ranking_is_by_loss_and_says_what_was_found(whole):
    rows = report.summary(whole)
    assert [row.variant for row in rows] == [
        "derf",
        *sorted(("layernorm", "rmsnorm"), key=[r.variant for r in rows].index),
        "dyt",
    ]
    assert [row.place for row in rows] == [(1, 1), (2, 3), (2, 3), (4, 4)]
    words = {row.variant: row.finding.word for row in rows if row.finding}
    assert words == {"derf": BETTER, "dyt": WORSE, "rmsnorm": SAME}
    assert {row.status for row in rows} == {"done"}


def test_the_numbers_of_a_row_are_those_of_the_logs(whole):
    ends = [json.loads(path.read_text().splitlines()[-1]) for path in sorted(whole.glob("runs/derf*seed[1-5].jsonl"))]
    row = row_of(whole, "derf")
    assert row.final.mean == pytest.approx(sum(end["final_loss"] for end in ends) / 5)
    assert row.best.mean == pytest.approx(sum(end["best_loss"] for end in ends) / 5)
    assert (row.seeds, row.planned, row.lr, row.parameters) == (5, 5, 0.003, 812_000)
    assert (row.peak_memory, row.tokens_per_second) == (412 * 2**20, ends[0]["tokens_per_second"])


def test_identical_variants_under_two_names_differ_in_no_repetition(tmp_path):
    """The same numbers under two names, as the lab gives on a CPU: 20 comparisons, none with a finding."""
    for repetition in range(20):
        folder = tmp_path / str(repetition)
        synthetic_logs.write_plan(folder, variants=("one", "other"), seeds=3)
        for seed in range(1, 4):
            events = synthetic_logs.run("one", seed + 10 * repetition, every=100)
            for name in ("one", "other"):
                synthetic_logs.write_run(folder, [{**events[0], "variant": name, "seed": seed}, *events[1:]])
        assert row_of(folder, "other").finding.word == EQUAL


def test_steps_to_the_baselines_loss(tmp_path):
    synthetic_logs.write_plan(tmp_path, variants=("base", "fast", "never"), seeds=1)
    final = {"base": [4.0, 3.0, 2.0], "fast": [4.0, 1.0, 0.5], "never": [4.0, 3.5, 3.0]}
    for name, losses in final.items():
        events = [{"event": "start", "variant": name, "lr": 0.1, "seed": 1, "phase": "final"}]
        for step, loss in zip((0, 10, 20), losses, strict=True):
            events.append({"event": "step", "step": step, "loss": loss, "seconds": step / 2})
            events.append({"event": "eval", "step": step, "loss": loss})
        end = {"event": "end", "status": "done", "final_loss": losses[-1], "best_loss": min(losses)}
        synthetic_logs.write_run(tmp_path, [*events, end])
    found = {row.variant: row.steps_to_baseline for row in report.summary(tmp_path)}
    assert found == {"base": 20, "fast": pytest.approx(20 / 3), "never": None}


def test_a_baseline_that_has_not_finished_is_what_is_missing(tmp_path):
    open_runs = {("layernorm", seed): "unfinished" for seed in (1, 2, 3)}
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "dyt": 0.1}, statuses=open_runs)
    words = "layernorm has not finished a run: nothing can be compared with it yet"
    assert report.headline(report.summary(tmp_path)) == words


def test_losses_of_next_to_nothing_are_written_with_their_power_of_ten(tmp_path):
    def tiny(*given, **more):
        small = ("loss", "final_loss", "best_loss")
        events = synthetic_logs.run(*given, **more)
        return [{name: 1e-9 * v if name in small and v else v for name, v in event.items()} for event in events]

    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "dyt": 0.1}, run=tiny)
    shown = report.table(report.summary(tmp_path))
    assert shown.count("e-09 ± ") == 2
    assert "0.00000000" not in shown


def test_what_failed_is_listed_with_what_happened(mixed):
    rows = {row.variant: row for row in report.summary(mixed)}
    assert list(rows) == ["derf", "layernorm", "slow", "later", "post-norm", "<b>crashed</b>"]
    assert rows["post-norm"].status == "diverged"
    assert rows["post-norm"].happened == "diverged in 2 of 4 seeds, first at step 94"
    assert rows["<b>crashed</b>"].happened == "crashed in 4 of 4 seeds: ValueError: no such </script> shape"
    assert rows["slow"].happened == "unfinished: 0 of 4 seeds"
    assert rows["later"].happened == "not started"
    assert [rows[name].finding for name in ("post-norm", "<b>crashed</b>", "slow", "later")] == [None] * 4


def test_bad_batches_are_those_of_no_one_step_where_seeds_met_them_at_several():
    def ended(*steps):
        runs = [SimpleNamespace(status="diverged", end={"bad_batch": step}) for step in steps]
        return ranking.happened(SimpleNamespace(final_runs=lambda _: runs), "dyt", "diverged", len(runs))

    assert ended(2, 2).endswith("in 2 of 2 seeds: the batch of step 2 has NaN or infinite values")
    assert ended(2, 1).endswith("in 2 of 2 seeds: batches have NaN or infinite values, the first at step 1")


def test_what_failed_is_written_as_csv_too(tmp_path):
    gains = {"layernorm": 0.0, "never": 0.0}
    synthetic_logs.comparison(tmp_path, gains, seeds=3)
    for path in tmp_path.glob("runs/*"):
        path.write_text(path.read_text().replace('"unit": "tokens"', '"unit": "samples"'))
    for path in tmp_path.glob("runs/never*"):
        path.unlink()
    crash = {"event": "end", "status": "crashed", "error": "ValueError: no such shape", "traceback": "in f"}
    (tmp_path / "runs" / "never--lr0.003--seed1.jsonl").write_text(json.dumps(crash) + "\n")
    first, *rows = csv_text(report.summary(tmp_path)).splitlines()
    assert [row.split(",")[0] for row in rows] == ["layernorm", "never"]
    assert "samples_per_second" in first
    assert "tokens" not in first


@pytest.mark.parametrize(("name", "column"), [("f1", "f1"), ("loss", "metric: loss"), ("p", "metric: p")])
def test_an_own_measure_takes_no_other_columns_name(name, column, tmp_path):
    run = functools.partial(synthetic_logs.run, measured=lambda step, loss: {"metric": 0.75})
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "dyt": 0.1}, run=run, metric=f"mine:{name}", higher=True)
    rows = report.summary(tmp_path)
    rows = [rows[0], dataclasses.replace(rows[1], decay=0.1)]
    lines = list(csv.DictReader(io.StringIO(csv_text(rows))))
    assert [line[column] for line in lines] == ["0.75", "0.75"]
    assert [line["weight_decay"] for line in lines] == ["", "0.1"]
    assert all(float(line["loss"]) > 1 for line in lines)


def test_the_survivors_of_divergence_do_not_win(tmp_path):
    """The seeds that came through are far better than the baseline; the variant still failed."""
    gains = {"layernorm": 0.0, "risky": 0.5}
    synthetic_logs.comparison(tmp_path, gains, seeds=5, statuses={("risky", 2): "diverged"})
    row = row_of(tmp_path, "risky")
    assert (row.status, row.finding, row.place) == ("diverged", None, None)


def test_a_search_in_which_every_rate_diverged(tmp_path):
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "post": 0.0}, seeds=3)
    for path in tmp_path.glob("runs/post*"):
        path.unlink()
    for lr in (0.001, 0.003):
        events = synthetic_logs.run("post", 0, lr=lr, phase="search", status="diverged")
        synthetic_logs.write_run(tmp_path, events)
    assert row_of(tmp_path, "post").happened.startswith("diverged at every learning rate tried")


def test_a_baseline_that_diverged_is_compared_with_nothing(tmp_path):
    statuses = {("layernorm", seed): "diverged" for seed in (1, 2, 3)}
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "rmsnorm": 0.1}, statuses=statuses)
    rows = report.summary(tmp_path)
    assert {row.variant: row.finding for row in rows} == {"layernorm": None, "rmsnorm": None}
    assert "nothing can be compared" in report.answer(rows)[0]
    report.write(tmp_path)


def test_two_seeds_are_too_few_to_tell(tmp_path):
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "derf": 0.5}, seeds=2)
    assert row_of(tmp_path, "derf").finding.word == FEW


def test_a_comparison_cut_short_is_ranked_over_the_seeds_in_common(tmp_path):
    """The worse variant has finished a lucky seed only; its own mean would put it first."""
    synthetic_logs.write_plan(tmp_path, variants=("layernorm", "worse"), seeds=2)
    for variant, seed, loss in (("layernorm", 1, 1.0), ("layernorm", 2, 9.0), ("worse", 1, 1.5)):
        start = {"event": "start", "variant": variant, "lr": 0.1, "seed": seed, "phase": "final"}
        end = {"event": "end", "status": "done", "final_loss": loss, "best_loss": loss}
        synthetic_logs.write_run(tmp_path, [start, end])
    assert [row.variant for row in report.summary(tmp_path)] == ["layernorm", "worse"]


def test_a_step_logged_twice_counts_once_as_last_logged(tmp_path):
    synthetic_logs.write_plan(tmp_path, variants=("layernorm",), seeds=1)
    start = {"event": "start", "variant": "layernorm", "lr": 0.1, "seed": 1, "phase": "final"}
    steps = [{"event": "step", "step": step, "loss": loss} for step, loss in ((5, 3.0), (10, 2.0), (10, 2.5))]
    synthetic_logs.write_run(tmp_path, [start, *steps])
    assert report.load(tmp_path).runs[0].curve == [(5, 3.0), (10, 2.5)]


def test_torn_and_foreign_lines_are_noted(mixed):
    assert report.load(mixed).notes == ["slow--lr0.003--seed1.jsonl: 1 line could not be read"]


def test_runs_of_other_held_out_data_are_noted(tmp_path):
    synthetic_logs.write_plan(tmp_path, variants=("layernorm", "dyt"), seeds=2)
    for variant, seed, held_out in (
        ("layernorm", 1, "2.1f"),
        ("layernorm", 2, "2.3e"),
        ("dyt", 1, "1f"),
        ("dyt", 2, "2.3e"),
    ):
        start = {"event": "start", "variant": variant, "lr": 0.1, "seed": seed, "phase": "final", "held_out": held_out}
        synthetic_logs.write_run(tmp_path, [start])
    assert report.load(tmp_path).notes == ["layernorm: the held-out data were not the same in all of its runs"]


@pytest.mark.parametrize(
    "content", ["", "\n", "\0\0\0", "[1]\n", '{"event": "step", "step": 1, "loss": 2}\n', '{"event": "st']
)
def test_a_log_without_a_beginning_is_noted(tmp_path, content):
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0}, seeds=1)
    (tmp_path / "runs" / "strange.jsonl").write_text(content)
    assert report.load(tmp_path).notes[-1] == "strange.jsonl: the run has not begun"
    report.write(tmp_path)


@pytest.mark.parametrize("cut", [0, 1, 60, 500, 3000])
def test_a_log_cut_anywhere_is_reported(tmp_path, cut):
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "derf": 0.1}, seeds=2)
    path = tmp_path / "runs" / "derf--lr0.003--seed2.jsonl"
    path.write_text(path.read_text()[:cut])
    assert row_of(tmp_path, "derf").happened == "unfinished: 1 of 2 seeds"
    assert report.table(report.summary(tmp_path))
    report.write(tmp_path)


def test_a_plan_without_runs_is_reported(tmp_path):
    synthetic_logs.write_plan(tmp_path)
    assert {row.happened for row in report.summary(tmp_path)} == {"not started"}
    assert "Not finished: layernorm, rmsnorm" in report.write(tmp_path).read_text()


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (None, "there is no plan.json"),
        ("{", "no plan"),
        ('{"variants": [{"name": "a"}], "baseline": "b"}', "'b'"),
        ("[]", "no plan"),
    ],
)
def test_a_folder_without_a_plan_is_refused(tmp_path, plan, said):
    if plan is not None:
        (tmp_path / "plan.json").write_text(plan)
    with pytest.raises(ValueError, match=said) as refused:
        report.load(tmp_path)
    assert str(tmp_path) in str(refused.value)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_text_table_fits_its_width_and_cuts_no_number(mixed, width):
    text = report.table(report.summary(mixed), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert text.count("412 MiB") == 3
    for said in ("derf", "layernorm", "post-norm", "crashed", "slow", "later", "±", "diverged in 2"):
        assert said in text


def test_no_width_cuts_a_cell(tmp_path):
    """Names as short as these are narrower than the title above them."""
    synthetic_logs.comparison(tmp_path, {"a": 0.0, "b": 0.3}, seeds=5)
    synthetic_logs.speeds(tmp_path, b=1.2)
    rows = report.summary(tmp_path)
    for width in range(60, 130):
        shown = report.table(rows, width=width)
        assert max(map(len, shown.splitlines())) <= width
        for column in tables.columns_of(rows):
            words = [word for row in rows for word in column.text(row).split()]
            assert not column.brief or all(word in shown for word in words), (width, column.title)


def test_speed_and_memory_stand_in_the_table_where_there_is_room(whole):
    shown = report.table(report.summary(whole), width=200)
    assert "tokens/s" in shown
    assert "MiB" in shown


def test_time_is_read_off_between_what_was_logged(whole):
    run = history.load(whole).runs[0]
    run = dataclasses.replace(run, steps=[{"step": 10, "seconds": 5.0}, {"step": 20, "seconds": 15.0}])
    assert [ranking.time_at(run, step) for step in (0, 4, 10, 15)] == [0.0, 2.0, 5.0, 10.0]
    assert math.isnan(ranking.time_at(dataclasses.replace(run, steps=[{"step": 10}]), 5))


def test_a_narrow_table_breaks_no_word_and_goes_on_below(tmp_path):
    long = "groupnorm:num_groups=4+peri-norm"
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, long: -0.3}, seeds=5)
    rows = report.summary(tmp_path)
    text = report.table(rows, width=80)
    assert max(map(len, text.splitlines())) <= 80
    for word in ("layernorm", "groupnorm:", "num_groups=4+", "peri-norm", "baseline", "worse"):
        assert re.search(rf"(?<!\S){re.escape(word)}(?!\S)", text), word
    for column in tables.columns_of(rows):
        assert not column.brief or column.title.split(" ")[0] in text
    assert text.count("groupnorm:") == text.count("variant") > 1
    assert report.table(rows, width=200).count("variant") == 1


def test_a_file_has_all_columns_on_one_line_a_variant(mixed):
    rows = report.summary(mixed)
    text = report.table(rows)
    for column in tables.columns_of(rows):
        assert column.title.split(" ")[0] in text
        assert all(" ".join(column.text(row).split()) in text for row in rows if not column.words)
    assert sum("crashed" in line for line in text.splitlines()) == 1


def test_a_likely_difference_is_called_so_with_the_seeds_that_would_decide_it(tmp_path):
    losses = {"batchnorm": [1.2, 0.9, 1.02], "frn": [0.27, 0.11, 0.75], "level": [1.1, 1.0, 0.8]}
    synthetic_logs.comparison(tmp_path, dict.fromkeys(losses, 0.0), seeds=3, run=ending_at(losses))
    rows = report.summary(tmp_path)
    words = {row.variant: row.finding.word for row in rows if row.finding}
    assert words == {"frn": LIKELY_BETTER, "level": SAME}
    lines = report.table(rows, width=200).splitlines()
    assert any("frn" in line and "likely better" in line for line in lines)
    assert any("level" in line and "no difference found" in line for line in lines)
    said = re.fullmatch(
        r"frn is likely better than batchnorm: its loss is 63\.8% lower than batchnorm's \(p = 0\.1\d, 3 seeds\); "
        r"about (\d+) seeds would decide the difference that was seen",
        report.headline(rows),
    )
    assert said, report.headline(rows)
    assert 4 <= int(said[1]) <= 8
    surer = [dataclasses.replace(row, finding=row.finding and row.finding._replace(p=1e-5)) for row in rows]
    assert "(p < 0.001, 3 seeds)" in report.headline(surer)
    told = report.answer(rows)
    assert told[0] == f"{said[0]}."
    assert re.match(r"No difference from batchnorm was found for level; .*; about \d+ seeds would decide", told[1])
    worse = {"frn": losses["frn"], "batchnorm": losses["batchnorm"]}
    synthetic_logs.comparison(tmp_path / "worse", dict.fromkeys(worse, 0.0), seeds=3, run=ending_at(worse))
    rows = report.summary(tmp_path / "worse")
    assert report.headline(rows).startswith("Keep frn: batchnorm is likely worse; about ")
    assert report.answer(rows)[0].startswith("batchnorm is likely worse than frn: ")
    assert row_of(tmp_path / "worse", "batchnorm").finding.word == LIKELY_WORSE
    assert "no difference found" not in report.table(rows, width=200)


def ending_at(losses):
    """Runs whose last losses are these, by variant and seed."""

    def run(variant, seed, **more):
        events = synthetic_logs.run(variant, seed, **more)
        if seed:
            events[-1]["final_loss"] = events[-2]["loss"] = losses[variant][seed - 1]
        return events

    return run


def test_what_would_take_a_thousand_seeds_is_not_counted(tmp_path):
    losses = {"a": [1.0, 2.0, 3.0, 4.0], "b": [1.9, 1.05, 4.1, 2.95 + 1e-3]}
    synthetic_logs.comparison(tmp_path, dict.fromkeys(losses, 0.0), seeds=4, run=ending_at(losses), margin=0.0)
    assert report.headline(report.summary(tmp_path)).endswith(
        "; more than 1000 seeds would decide the difference that was seen"
    )


def test_an_interval_wider_than_what_is_possible_is_written_with_its_ends(tmp_path):
    losses = {"a": [1.0, 1.1, 0.9], "b": [0.2, 0.5, 0.65]}
    accuracy = {0.2: 0.9, 0.5: 0.1, 0.65: 0.65}

    def run(*words, **more):
        events = ending_at(losses)(*words, **more)
        events[-2]["accuracy"] = accuracy.get(events[-2]["loss"], 0.5)
        return events

    synthetic_logs.comparison(tmp_path, dict.fromkeys(losses, 0.0), seeds=3, run=run)
    text = report.table(report.summary(tmp_path))
    assert "55.0% [0.0, 100.0]" in text
    assert re.search(r"-55.0% \[-100.0, \+\d+.\d\]", text), text


def test_the_answer_in_sentences(whole, mixed):
    rows = report.summary(whole)
    told = "\n".join(report.answer(rows))
    assert re.search(r"^derf is better than layernorm: its final loss is 1\d\.\d% ± \d\.\d lower \(p < 0\.001", told)
    assert "dyt is worse than layernorm" in told
    least = row_of(whole, "rmsnorm").finding.least / row_of(whole, "layernorm").final.mean
    said = f"No difference from layernorm was found for rmsnorm; one of {least:.1%} would have been, four times in five"
    assert said in told
    assert re.search(r"four times in five; about \d+ seeds would decide the difference that was seen\.", told)
    assert report.headline(rows).startswith("Take derf: its loss is 1")
    assert "Not finished: slow, later; the same command goes on from here." in report.answer(report.summary(mixed))


@pytest.mark.parametrize(
    "gains, noise, ratio, said",
    [
        ({"b": 0.0}, 0.0005, 0.88, "Take b: as good as a, and 12% [11, 13] less CPU time a step"),
        ({"b": 0.0}, 0.0005, 0.99, "Keep a: b is as good, and not surely cheaper"),
        ({"b": 0.0}, 0.0005, 1.2, "Keep a: b is as good, and not surely cheaper"),
        ({"b": -0.3}, 0.0005, 0.5, "Keep a: b is worse"),
        ({"b": 0.0}, 0.1, 0.5, "Keep a: nothing was found to be better"),
        ({"b": 0.3, "c": 0.3}, 0.001, 0.5, "Take {} or {}: its loss is 1"),
    ],
)
def test_the_headline_says_what_to_do(gains, noise, ratio, said, tmp_path):
    given = {"run": lambda *words, **more: synthetic_logs.run(*words, noise=noise, **more)}
    synthetic_logs.comparison(tmp_path, {"a": 0.0, **gains}, seeds=6, **given)
    synthetic_logs.speeds(tmp_path, b=ratio)
    rows = report.summary(tmp_path)
    assert report.headline(rows).startswith(said.format(rows[0].variant, rows[1].variant))
    assert report.headline(rows) in report.write(tmp_path).read_text().replace("&#39;", "'")


def test_time_is_reported_with_its_interval_and_only_where_it_is_sure(tmp_path):
    synthetic_logs.comparison(tmp_path, {"a": 0.0, "faster": -0.3, "level": -0.3}, seeds=5)
    synthetic_logs.speeds(tmp_path, faster=0.8, level=1.0)
    rows = {row.variant: row for row in report.summary(tmp_path)}
    assert rows["a"].speed is None
    assert rows["faster"].speed[:4] == (pytest.approx(0.8), pytest.approx(0.792), pytest.approx(0.808), 40)
    told = "\n".join(report.answer([*rows.values()]))
    assert "20% [19, 21] less CPU time a step" in told
    assert told.count("time a step") == 1
    assert "-20% [-21, -19]" in report.table([*rows.values()], width=160)
    assert rows["a"].cpu_seconds == pytest.approx(2 * rows["a"].seconds)


def test_no_difference_in_time_is_reported_as_none():
    alike = Ratio(1.0, 0.9, 1.1, 40, "CPU time")
    assert faster(alike, brief=False) == "0% [-10, 10] more CPU time a step"
    assert faster(alike) == "+0% [-10, +10]"


def test_a_file_of_times_that_is_damaged_is_none(tmp_path):
    synthetic_logs.comparison(tmp_path, {"a": 0.0, "b": 0.0}, seeds=3)
    for content in ("", "[]", '{"rounds": {"b": [[1]]}}', '{"rounds": 3}'):
        (tmp_path / "speed.json").write_text(content)
        assert row_of(tmp_path, "b").speed is None


def test_a_twin_is_a_control_without_a_place(tmp_path):
    synthetic_logs.comparison(tmp_path, {"a": 0.0, "b": 0.3, "twin": 0.01}, seeds=5)
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["variants"][2] |= {"norm": "a", "start": "permuted"}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    rows = {row.variant: row for row in report.summary(tmp_path)}
    assert {name: row.place for name, row in rows.items()} == {"b": (1, 1), "twin": None, "a": (2, 2)}
    told = "\n".join(report.answer([*rows.values()]))
    assert re.search(r"Control: twin, which is a from another start, differs by -0\.\d+% ± \d\.\d+, by chance", told)
    alone = findings.findings({n: values_of(tmp_path, n) for n in "ab"}, "a")["b"]
    assert rows["b"].finding.p == alone.p
    synthetic_logs.comparison(tmp_path, {"a": 0.0, "b": 0.3, "twin": 0.4}, seeds=5)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert "trust no finding of this size here" in "\n".join(report.answer(report.summary(tmp_path)))


def values_of(folder, variant):
    return {run.seed: run.final() for run in report.load(folder).final_runs(variant)}


def test_seeds_that_were_not_needed_are_not_missing(tmp_path):
    """The clear one was decided after four seeds, the open one took all."""
    given = {"run": lambda *words, **more: synthetic_logs.run(*words, noise=0.05, **more)}
    synthetic_logs.comparison(tmp_path, {"a": 0.0, "clear": 0.8, "open": 0.0}, seeds=8, until_decided=True, **given)
    for seed in range(5, 9):
        (tmp_path / "runs" / f"clear--lr0.003--seed{seed}.jsonl").unlink()
    rows = {row.variant: row for row in report.summary(tmp_path)}
    assert {name: (row.status, row.seeds, row.planned) for name, row in rows.items()} == {
        "a": ("done", 8, 8),
        "clear": ("done", 4, 4),
        "open": ("done", 8, 8),
    }
    assert rows["clear"].finding.word == BETTER
    page = report.write(tmp_path).read_text()
    assert "with looks after 4, 6 and 8" in page
    (tmp_path / "runs" / "open--lr0.003--seed6.jsonl").unlink()
    assert row_of(tmp_path, "open").happened == "unfinished: 5 of 6 seeds"


def test_a_rate_at_the_edge_of_the_search_is_noted(tmp_path):
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "rmsnorm": 0.0}, seeds=1)
    for name in ("rmsnorm", "layernorm"):
        assert row_of(tmp_path, name).edge == ""
    (tmp_path / "runs" / "rmsnorm--lr0.009--seed0.jsonl").unlink()
    assert row_of(tmp_path, "rmsnorm").edge == "highest"
    said = "The search ended at its edge: the highest learning rate tried, 0.003, was the best for rmsnorm; a better"
    assert said in "\n".join(report.answer(report.summary(tmp_path)))
    assert said in report.write(tmp_path).read_text()


def measured(folder, gains, **given):
    """Write a comparison in which a lower loss goes with a lower accuracy and a higher own measure."""

    def of(step, loss):
        return {"accuracy": 0.9 + 0.1 * (loss - 1.9), "metric": 5.0 - loss}

    run = {"run": lambda *words, **more: synthetic_logs.run(*words, measured=of, **more)}
    return synthetic_logs.comparison(folder, gains, seeds=5, **run, **given)


def test_classifiers_show_their_accuracy(tmp_path):
    measured(tmp_path, {"batchnorm": 0.0})
    row = row_of(tmp_path, "batchnorm")
    assert row.accuracy.mean == pytest.approx(0.9 + 0.1 * (row.final.mean - 1.9))
    assert f"{row.accuracy.mean:.1%} ±" in report.write(tmp_path).read_text()


@pytest.mark.parametrize(
    "metric, higher, word, places",
    [
        (None, False, BETTER, [(1, 1), (2, 2)]),
        ("accuracy", True, WORSE, [(1, 1), (2, 2)]),
        ("mine:score", True, BETTER, [(1, 1), (2, 2)]),
        ("mine:score", False, WORSE, [(1, 1), (2, 2)]),
    ],
)
def test_the_finding_is_on_the_measure_that_was_named(metric, higher, word, places, tmp_path):
    measured(tmp_path, {"a": 0.0, "b": 0.3}, metric=metric, higher=higher)
    rows = report.summary(tmp_path)
    assert [row.place for row in rows] == places
    assert rows[0].variant == ("b" if word == BETTER else "a")
    row = row_of(tmp_path, "b")
    assert row.finding.word == word
    key = {"accuracy": "accuracy", "mine:score": "metric"}.get(metric, "loss")
    ends = [run.evals[-1][key] for run in report.load(tmp_path).final_runs("b")]
    assert row.measured.mean == pytest.approx(sum(ends) / 5)
    name = {"accuracy": "accuracy", "mine:score": "score"}.get(metric, "loss")
    assert f"{name} is " in report.headline(rows) or word == WORSE
    page = report.write(tmp_path).read_text()
    assert f"compared by their {name}" in page
    assert "final loss" in page


def test_a_margin_is_the_users(tmp_path):
    given = {"run": lambda *words, **more: synthetic_logs.run(*words, noise=0.0005, **more)}
    for margin, word in ((0.05, EQUAL), (1e-4, WORSE)):
        synthetic_logs.comparison(tmp_path, {"a": 0.0, "b": -0.02}, seeds=5, margin=margin, **given)
        assert row_of(tmp_path, "b").finding.word == word
        assert f"on either side of {100 * margin:g}% of" in report.write(tmp_path).read_text()


def test_a_column_with_little_to_say_goes(tmp_path):
    """Steps to the baseline's loss, where one of three variants gets there."""
    synthetic_logs.comparison(tmp_path, {"a": 0.0, "b": -0.3, "c": -0.3}, seeds=3)
    titles = [column.title for column in tables.columns_of(report.summary(tmp_path))]
    assert not any("steps to" in title for title in titles)
    synthetic_logs.comparison(tmp_path, {"a": 0.0, "b": 0.3, "c": 0.3}, seeds=3)
    assert "steps to a's loss" in [column.title for column in tables.columns_of(report.summary(tmp_path))]


def test_the_row_of_the_baseline_is_bold_in_a_terminal(tmp_path):
    synthetic_logs.comparison(tmp_path, {"a": 0.0, "b": -0.3}, seeds=3)
    rows = report.summary(tmp_path)
    [table] = report.rich_table(rows).renderables
    styles = {row.variant: drawn.style for row, drawn in zip(rows, table.rows, strict=True)}
    assert styles == {"a": "bold", "b": None}


def test_an_axis_shows_the_end_rather_than_the_first_steps(whole):
    low, high = figures.curves(report.load(whole))["layout"]["yaxis"]["range"]
    assert 1 < low < 2.5 < high < 6  # the first logged loss is above 6


@pytest.mark.parametrize(
    "heights, common",
    [([1.0, 2.0, 3.0], 3.0), ([1.0, 1.0, 10.0], 4.0), ([1.0, 10.0], 4.0), ([0.0, 0.0, 5.0], 5.0), ([2.0], 2.0)],
)
def test_the_height_that_is_shown_is_the_greatest_or_four_times_the_common_one(heights, common):
    assert figures._common(heights) == common


def test_the_axis_of_norms_names_1_2_and_5_of_a_few_powers_of_ten_and_1_of_many():
    assert figures._norms_axis([{"y": [2.0, 9.0]}]) == {"rangemode": "tozero"}
    axis = figures._norms_axis([{"y": [0.3, 40.0]}])
    assert axis["ticktext"] == ["0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50", "100", "200", "500"]
    for most in (900.0, 4000.0):
        assert figures._norms_axis([{"y": [0.3, most]}])["ticktext"][:3] == ["0.1", "1", "10"]


def test_gradients_by_depth_are_of_the_first_and_last_step_that_the_loss_scale_did_not_leave_out(whole):
    comparison = report.load(whole)
    runs = [run for name in comparison.variants for run in comparison.final_runs(name)]
    first = [run.probes[1]["layers"][0]["gradient"] for run in runs if run.variant == "dyt"]
    for run in runs:
        for at in (0, -1):
            for layer in run.probes[at]["layers"]:
                layer["gradient"] = None
    start, end = (figures.depths(comparison, "gradient", at)["data"] for at in (0, -1))
    assert {trace["name"] for trace in start} == {trace["name"] for trace in end} == set(comparison.variants)
    [mean] = [trace["y"] for trace in start if trace["name"] == "dyt" and "fill" not in trace]
    assert mean[0] == pytest.approx(sum(first) / len(first))


def test_a_variant_far_off_does_not_squash_the_others(whole):
    run = report.load(whole).runs[0]
    near, far = [(step, 3.0 - step / 100) for step in range(100)], [(step, 500.0) for step in range(100)]
    low, high = figures.limits({"a": [(run, near)], "b": [(run, near)], "c": [(run, far)]})
    assert (low, high) == (pytest.approx(2.01, abs=0.3), pytest.approx(2.01 + 4 * 0.89, abs=0.3))
    low, high = figures.limits({"a": [(run, near)], "c": [(run, far)]})
    assert high < 10


def test_a_long_run_is_thinned(tmp_path):
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0}, seeds=1)
    synthetic_logs.write_run(tmp_path, synthetic_logs.run("layernorm", 1, steps=4000, every=1))
    figure = figures.curves(report.load(tmp_path))
    assert max(len(trace["x"]) for trace in figure["data"]) <= figures.MOST_POINTS
    assert figure["data"][-1]["x"][-1] == 4000


def test_runs_of_unequal_length_are_averaged_where_all_are(tmp_path):
    """As with equal seconds: a mean over fewer and fewer seeds would jump at the end."""
    synthetic_logs.write_plan(tmp_path, variants=("layernorm",), seeds=3, steps=None, seconds=30)
    for seed in (1, 2, 3):
        synthetic_logs.write_run(tmp_path, synthetic_logs.run("layernorm", seed, steps=2000 + 130 * seed, every=1))
    comparison = report.load(tmp_path)
    shortest = comparison.runs[0]
    by_step, by_time = figures.curves(comparison)["data"][-1], figures.times(comparison)["data"][-1]
    assert 100 < len(by_step["x"]) <= figures.MOST_POINTS
    assert by_step["x"][-1] <= 2130
    assert by_time["x"][-1] == pytest.approx(shortest.final("seconds"), abs=0.01)
    ends = [dict(run.curve) for run in comparison.runs]
    assert min(min(end.values()) for end in ends) <= by_time["y"][-1] <= max(end[2000] for end in ends)


def test_one_learning_rate_makes_no_picture_of_its_sensitivity(tmp_path):
    synthetic_logs.write_plan(tmp_path, variants=("layernorm",), seeds=1)
    synthetic_logs.write_run(tmp_path, synthetic_logs.run("layernorm", 1))
    titles = [picture["title"] for picture in figures.pictures(report.load(tmp_path))]
    assert "Learning-rate sensitivity" not in titles
    assert "Held-out loss" in titles


def test_plotly_knows_every_word_of_the_pictures(whole, mixed):
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for folder in (whole, mixed):
        for picture in figures.pictures(report.load(folder)):
            painted = re.sub(r'"var\(--\w+\)( [\d.]+)?"', '"#123456"', json.dumps(picture["figure"]))
            graph_objects.Figure(json.loads(painted))


def test_every_variant_is_drawn_alike_everywhere_and_unlike_the_others():
    names = tuple(f"v{i}" for i in range(30))
    comparison = report.Comparison(None, synthetic_logs.plan(variants=names), [], [])
    looks = [(look["colour"], look["dash"]) for look in (figures.style(comparison, name) for name in names)]
    assert len(set(looks)) == len(looks)


def test_each_line_has_a_colour_of_the_pages_style_sheet():
    names = tuple(f"v{i}" for i in range(30))
    comparison = report.Comparison(None, synthetic_logs.plan(variants=names), [], [])
    sheet = (Path(report.__file__).parents[2] / "page" / "base.html").read_text(encoding="utf-8")
    colours = {f"var({name})" for name in re.findall(r"(--c\d+):", sheet)}
    assert colours == {figures.style(comparison, name)["colour"] for name in names[1:]}
    fits = [page._line([], [], place, SimpleNamespace(name="", seed=0)) for place in range(30)]
    assert colours == {fit["line"]["color"] for fit in fits}


@pytest.mark.parametrize(
    "seeds, settings, a, b, c",
    [
        (4, {}, (3, 3), (2, 2), (1, 1)),
        (4, {"margin": 0.05}, (3, 3), (1, 2), (1, 2)),
        (4, {"metric": "mine:score", "higher": True}, (1, 1), (2, 2), (3, 3)),
        (8, {"until_decided": True}, (3, 3), (1, 2), (1, 2)),
    ],
)
def test_places_are_by_the_settings_and_by_the_level_of_a_look(seeds, settings, a, b, c):
    """The p of b and c, 0.041, is below the level of one look and above that of the first of three."""
    plan = synthetic_logs.plan(variants="abc", seeds=seeds, **settings)
    values = {"a": [9.0, 9.1, 9.2, 9.3], "b": [1.1, 1.2, 1.3, 1.4], "c": [1.0, 0.9, 1.15, 1.0]}
    by_seed = {name: dict(enumerate(own, 1)) for name, own in values.items()}
    judged = ranking.judge(report.Comparison(None, plan, [], []), by_seed)
    assert judged.planned == dict.fromkeys("abc", 4)
    assert judged.places == {"a": a, "b": b, "c": c}
    by_seed["c"] = {seed: value - 5 for seed, value in by_seed["c"].items()}
    clear = ranking.judge(report.Comparison(None, plan, [], []), by_seed)
    assert clear.places == {"a": a, "b": (2, 2), "c": (4 - a[0], 4 - a[0])}


def test_no_line_hides_another(whole):
    """The baseline is wider than the others and drawn first; the others are broken, and each in its own way."""
    comparison = report.load(whole)
    for picture in figures.pictures(comparison):
        lines = [trace for trace in picture["figure"]["data"] if trace.get("line", {}).get("width", 0) > 1]
        own = [trace["name"] == "layernorm" for trace in lines]
        assert own == sorted(own, reverse=True), picture["title"]
        for trace, base in zip(lines, own, strict=True):
            assert (trace["line"]["dash"] == "solid") == base
            assert (trace["line"]["width"] > 2 * figures.NARROW) == base


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [1280, 1024])
def test_no_column_is_cut(width, tmp_path):
    measured(tmp_path / "a", {"layernorm": 0.0, "groupnorm:num_groups=4+peri-norm": 0.3, "rmsnorm": 0.3})
    synthetic_logs.speeds(tmp_path / "a", rmsnorm=0.8, **{"groupnorm:num_groups=4+peri-norm": 1.2})
    page = report.write(tmp_path / "a")
    ask = "[...document.querySelectorAll('.frame')].map((f) => [f.scrollWidth, f.clientWidth].join('/')).join(' ')"
    script = f"<script>document.body.dataset.widths = {ask}</script></body>"
    page.write_text(page.read_text().replace("</body>", script))
    elements, _ = opened(page, tmp_path / "profile", f"--window-size={width},900")
    widths = re.search(r'data-widths="([^"]+)"', elements)[1].split()
    assert len(widths) >= 3
    assert all(int(inside) <= int(outside) for inside, outside in (pair.split("/") for pair in widths)), widths


def test_the_page_has_every_setting_and_the_command(whole):
    page = report.write(whole).read_text()
    assert "normkit compare --norm layernorm rmsnorm dyt derf --out &#39;my report&#39;" in page
    for key in json.loads((whole / "plan.json").read_text())["settings"]:
        assert f"<dt>{key}</dt>" in page


def test_what_a_user_named_is_text_and_not_markup(mixed):
    page = report.write(mixed).read_text()
    assert "<b>crashed" not in page
    assert "&lt;b&gt;crashed&lt;/b&gt;" in page
    assert page.count("</script>") == page.count("<script")


def test_the_report_is_replaced_whole(whole):
    report.write(whole)
    assert report.write(whole) == whole / "index.html"
    assert sorted(path.name for path in whole.iterdir()) == ["index.html", "plan.json", "runs"]


def opened(page, profile, *more):
    """Return the page's elements as Chromium has made them, and what it complained of."""
    quiet = ["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-sync", *quiet, "--enable-logging=stderr"]
    command = [
        BROWSER,
        *options,
        f"--user-data-dir={profile}",
        *more,
        "--virtual-time-budget=5000",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_browser_draws_every_picture_and_asks_the_network_for_nothing(mixed, tmp_path):
    """The page forbids itself requests, so one that is tried shows as a complaint, as an error in a script does."""
    pictures = figures.pictures(report.load(mixed))
    elements, complaints = opened(report.write(mixed), tmp_path)
    assert complaints == []
    assert elements.count('class="plot js-plotly-plot"') == len(pictures) == 10
    drawn = sum(bool(trace["x"]) for picture in pictures for trace in picture["figure"]["data"])
    assert elements.count('<g class="trace scatter') == drawn


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_click_on_the_legend_hides_a_variant_everywhere(tmp_path):
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "derf": 0.1}, seeds=1)
    traces = [trace for p in figures.pictures(report.load(tmp_path)) for trace in p["figure"]["data"]]
    page = report.write(tmp_path)
    click = "<script>document.querySelector('.keys button[data-variant=\"1\"]').click()</script></body>"
    page.write_text(page.read_text().replace("</body>", click))
    elements, complaints = opened(page, tmp_path / "profile")
    assert complaints == []
    assert elements.count('<g class="trace scatter') == sum(trace["name"] == "layernorm" for trace in traces) > 0


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_request_would_have_been_seen(tmp_path):
    synthetic_logs.write_plan(tmp_path)
    page = report.write(tmp_path)
    page.write_text(page.read_text().replace("</main>", '<img src="https://example.invalid/a.png"></main>'))
    assert any("Content Security Policy" in line for line in opened(page, tmp_path / "profile")[1])


def test_numbers_that_are_none_leave_gaps():
    assert json.loads(as_json([1.0, math.nan, math.inf, "</script>"])) == [1.0, None, None, "</script>"]


def test_what_the_watch_found_is_reported_for_every_variant(tmp_path):
    found = {"rule": "dead-units", "title": "units are dead", "where": ["3"], "since": 40, "evidence": "60% of 3."}
    found |= {"leads": "a narrower network", "remedies": [["batchnorm", "nk.BatchNorm(width)"]]}
    synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "dyt": 0.0}, seeds=3)
    assert "What goes wrong" not in report.page(report.load(tmp_path)), "of logs of before"
    for path in tmp_path.glob("runs/*--seed[123].jsonl"):
        *events, end = path.read_text().splitlines()
        ill = [found] if path.name.startswith("dyt") and "seed2" in path.name else []
        event = {"event": "found", "seen": "5 samples", "findings": ill}
        path.write_text("\n".join([*events, json.dumps(event), end, ""]))
    text = report.page(report.load(tmp_path))
    assert text.count("nothing found") == 1
    assert "units are dead: 3, since step 40" in text
    assert "60% of 3. Seen in 1 of 3 runs; these are the words of seed 2." in text
    assert "try batchnorm: <code>nk.BatchNorm(width)</code>" in text


def test_a_title_stands_on_two_lines_and_needs_the_longer_one():
    column = tables.Column("time a step", lambda row: "1")
    room = 2 * (tables.GAP + len("a step"))
    assert [len(part) for part in tables.parts([None], [column, column], room)] == [2]
    assert [len(part) for part in tables.parts([None], [column, column], room - 1)] == [1, 1]


def test_what_a_finding_is_stays_where_most_variants_have_none(tmp_path):
    diverged = {(name, seed): "diverged" for name in "cde" for seed in (2, 3)}
    synthetic_logs.comparison(tmp_path, {"a": 0.0, "b": -0.3, **dict.fromkeys("cde", 0.1)}, seeds=3, statuses=diverged)
    rows = report.summary(tmp_path)
    assert sum(row.finding is not None for row in rows) < len(rows) / 2
    assert {"finding", "could find", "p"} <= {column.title for column in tables.columns_of(rows)}


@pytest.mark.parametrize("mean", [0.1, 1.7, -0.3])
def test_an_interval_far_wider_than_its_mean_is_even(mean):
    scale = Scale(Measure("own"), 0.0, 2, 1)
    assert scale.difference(findings.Interval(mean, 3e8 / 7, 5)) == f"{mean:+.1f} ± 4.29e+07"


ACCURACY = Measure("accuracy", "accuracy", higher=True)
BASELINE = SimpleNamespace(is_baseline=True, measured=findings.Interval(0.95, 0.01, 5), measure=ACCURACY, finding=None)


@pytest.mark.parametrize(
    ("scale", "mean", "half", "written"),
    [
        (ladder.scale_of(SimpleNamespace(settings={"metric": "accuracy"}), {}), -0.05, 0.01, "-5.00 ± 1.00"),
        (ladder.scale_of(SimpleNamespace(settings={}), {}), -1.5, 0.1, "-150.00% ± 10.00"),
        (factor.scale_of([BASELINE]), 0.4, 0.03, "+40.00 ± 3.00"),
        (Scale(ACCURACY, 0.95, 3, 2), 0.06, 0.2, "+6.00 [-14.00, +6.00]"),
        (Scale(Measure(), 1.0, 3, 2), -0.95, 0.2, "-95.00% [-100.00, -75.00]"),
        (Scale(Measure(), 1.0, 3, 2), -1.05, 0.2, "-105.00% [-105.00, -85.00]"),
    ],
)
def test_an_interval_holds_its_own_mean(scale, mean, half, written):
    assert scale.difference(findings.Interval(mean, half, 5)) == written
