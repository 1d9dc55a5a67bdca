"""A training loop of the user's own: what it is given, what becomes of what it says, and how it goes on."""

import functools
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import all_numbers
from torch import nn

import normkit as nk
from normkit import cli
from normkit.lab import logs
from normkit.lab.plan.plan import Run
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant
from normkit.lab.report import exports, page
from normkit.lab.training import loop, own

DONE = []  # the seeds of the runs that have been trained


def compare(root, train, **given):
    usual = {"norms": ["layernorm", "dyt"], "seeds": 2, "engine": "here", "out": root}
    return nk.compare(**{**usual, **given, "train": train})


def steady(build, seed, log):
    """Learns nothing, and says so."""
    DONE.append(seed)
    norm = build(4)
    for step in range(1, 4):
        log(step, loss=torch.tensor(1.0 / step, requires_grad=True), gradient_norm=2.0)
    log(3, val_loss=0.5, val_accuracy=0.25)
    return seed + (0.5 if type(norm).__name__ == "DyT" else 0.0)


def test_what_it_logs_and_returns_stands_in_the_report(tmp_path):
    result = compare(tmp_path / "out", steady)
    assert {row.variant: row.measured.mean for row in result.rows} == {"layernorm": 1.5, "dyt": 2.0}
    assert "Variants are compared by their loss as test_own_loop:steady returned it" in result.report.read_text()
    assert "2 variants trained by test_own_loop:steady" in result.report.read_text()
    steps = [event for event in all_numbers(tmp_path / "out")["dyt--lr0--seed1.jsonl"] if event["event"] == "step"]
    assert [event["loss"] for event in steps] == [1.0, 0.5, pytest.approx(1 / 3)]
    run = result.comparison.final_runs("dyt")[0]
    assert run.evals[-1] == {"event": "eval", "loss": 0.5, "accuracy": 0.25, "step": 3}
    assert "learning rate" not in str(result)
    assert [line["lr"] for line in exports.records(result.rows)] == [None, None]
    assert all(line.endswith(",") for line in result.to_csv().splitlines()[1:])


def test_a_measure_has_the_name_that_the_user_gives_it(tmp_path):
    result = compare(tmp_path, steady, metric="points", metric_direction="higher")
    assert result.rows[0].variant == "dyt"
    assert result.rows[0].measure.name == "points"
    assert result.rows[0].final.mean == 0.5


def test_steps_to_the_baselines_loss_are_counted_on_held_out_data_alone(tmp_path):
    def train(build, seed, log, held_out=False):
        end = 2.0 if type(build(4)).__name__ == "LayerNorm" else 3.0
        for step in range(1, 101):
            log(step, loss=end / math.sqrt(step))
            if held_out and step % 10 == 0:
                log(step, val_loss=end + 1 - step / 100)
        return end

    def steps(result):
        return {row.variant: row.steps_to_baseline for row in result.rows}

    assert steps(compare(tmp_path / "training losses", train)) == {"layernorm": None, "dyt": None}
    held_out = functools.partial(train, held_out=True)
    assert steps(compare(tmp_path / "held-out losses", held_out)) == {"layernorm": 100, "dyt": None}


def test_the_same_call_trains_nothing(tmp_path):
    compare(tmp_path, steady)
    DONE.clear()
    compare(tmp_path, steady)
    assert DONE == []


def test_a_damaged_log_is_set_aside_and_log_terminal_and_report_say_so(tmp_path, capsys):
    whole = compare(tmp_path, steady)
    path = tmp_path / "runs" / "dyt--lr0--seed1.jsonl"
    earlier, aside = (path.with_name(f"{path.name}.damaged{number}") for number in ("", 2))
    earlier.write_text("set aside before")
    path.write_bytes(path.read_bytes().replace(b'"loss": 0.5', b'"loss": 0.4'))
    DONE.clear()
    result = compare(tmp_path, steady)
    assert DONE == [1]
    assert aside.exists()
    assert earlier.read_text() == "set aside before"
    note = f"{path} was damaged or of another run; it was set aside, and the run began again"
    assert [event["text"] for event in logs.read(path).of(logs.NOTE)] == [note]
    assert note in capsys.readouterr().err
    assert f"{path.name}: {note}" in result.comparison.notes
    assert [row.measured for row in result.rows] == [row.measured for row in whole.rows]


def stopped_at(number):
    """A loop that is interrupted when it is called for so many a time."""
    calls = itertools.count(1)

    def train(build, seed, log):
        if next(calls) == number:
            raise KeyboardInterrupt
        return steady(build, seed, log)

    return train


def test_after_ctrl_c_it_goes_on_with_what_is_missing(tmp_path, capsys):
    train = stopped_at(3)
    with pytest.raises(KeyboardInterrupt):
        compare(tmp_path, train)
    assert f"stopped; the same call goes on from {tmp_path}" in capsys.readouterr().err
    DONE.clear()
    result = compare(tmp_path, train)
    assert DONE == [2, 2]
    assert [row.seeds for row in result.rows] == [2, 2]


def test_a_worker_that_is_asked_to_stop_leaves_at_the_next_line_of_the_log(tmp_path):
    run = Run(Variant("dyt", norm="dyt"), 0.0, 1, "final")
    (tmp_path / "runs").mkdir()
    (tmp_path / "checkpoints").mkdir()
    settings = Settings(model="", data="", train="test_own_loop:steady")
    end = loop.train(run, settings, str(tmp_path), lambda: True)
    assert end["status"] == logs.INTERRUPTED
    assert loop.train(run, settings, str(tmp_path))["status"] == logs.DONE


def test_workers_run_it_as_well(tmp_path):
    def train(build, seed, log):
        return float(build(4).weight.sum()) + torch.rand(()).item()

    beside = compare(tmp_path / "beside", train, engine="local", norms=["layernorm"])
    here = compare(tmp_path / "here", train, norms=["layernorm"])
    assert beside.rows[0].measured == here.rows[0].measured


def test_a_model_of_its_own_has_its_norms_exchanged_and_the_optimizer_is_the_variants(tmp_path):
    seen = []

    def train(build, seed, log):
        model = build(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)))
        seen.append((type(model[1]).__name__, type(build.optimizer(model, lr=0.1)).__name__))
        return 1.0

    compare(tmp_path, train, norms=["original", "dyt"], optimizers=["adamw", "sgd"], seeds=1)
    assert sorted(seen) == [("DyT", "AdamW"), ("DyT", "SGD"), ("LayerNorm", "AdamW"), ("LayerNorm", "SGD")]


def test_a_width_of_numpy_is_a_width():
    assert own.Build(Variant("dyt", norm="dyt"))(np.int64(4)).weight.shape == (4,)


def test_it_is_given_what_it_asks_for(tmp_path):
    seen = []

    def train(build, seed, log, lr, steps):
        seen.append((seed, lr, steps))
        build(4)
        return (lr - 0.01) ** 2

    compare(tmp_path, train, norms=["dyt"], seeds=1, steps=7, lr=[0.001, 0.01])
    assert seen == [(0, 0.001, 7), (0, 0.01, 7), (1, 0.01, 7)]


@pytest.mark.parametrize("given, lengths", [({}, (30, None)), ({"steps": 4}, (4, None)), ({"seconds": 0.5}, (30, 0.5))])
def test_a_default_of_its_own_stands_where_nothing_is_given(given, lengths, tmp_path):
    seen = set()

    def train(build, seed, log, steps=30, seconds=None):
        seen.add((steps, seconds))
        return float(build(4)(torch.ones(4)).sum())

    compare(tmp_path, train, seeds=1, **given)
    assert seen == {lengths}


def test_variants_may_have_lengths_and_rates_of_their_own(tmp_path):
    seen = []

    def train(build, seed, log, steps, lr):
        seen.append((steps, lr))
        return float(build(4)(torch.ones(4)).sum())

    variants = [{"norm": "layernorm", "steps": 3, "lr": 0.5}, {"norm": "dyt", "steps": 5, "lr": 0.1}]
    compare(tmp_path, train, norms=None, variants=variants, seeds=1)
    assert seen == [(3, 0.5), (5, 0.1)]


def test_the_report_names_no_setting_that_the_loop_decides(tmp_path):
    result = compare(tmp_path, steady, seeds=1)
    names = {name for _, lines in page.settings(result.comparison) for name, _ in lines}
    assert {"train", "seeds", "margin", "device"} <= names
    assert not names & {"warmup", "clip", "weight decay", "length", "precision", "batch", "eval every", "model"}


@pytest.mark.parametrize(
    "train, error",
    [
        (lambda build, seed, log: 1.0, "train never called build(width) or build(model), so that variants do not"),
        (lambda build, seed, log: build(4) and None, "train must return a number, the final measure, not None"),
        (lambda build, seed, log: build("4"), "build takes a width, for a norm, or a model, whose norms it exchanges"),
        (lambda build, seed, log: log(0.5), "log: the step must be a whole number from 0, not 0.5"),
        (lambda build, seed, log: log(1, loss="low"), "log: loss must be a number, not 'low'"),
        (lambda build, seed, log: log(1, loss=1.0, tokens=8), "are the log's own; give 'tokens' another name"),
        (lambda build, seed, log: log(1, val_step=1), "are the log's own; give 'val_step' another name"),
    ],
)
def test_what_it_does_wrong_is_in_the_report(train, error, tmp_path, capsys):
    result = compare(tmp_path, train, seeds=1)
    assert all(error in row.happened for row in result.rows)
    assert "2 of 2 runs crashed" in capsys.readouterr().err
    for path in (tmp_path / "runs").glob("*.jsonl"):
        assert logs.read(path).end["traceback"].startswith("Traceback"), "where it went wrong is in the log"


def test_an_infinite_measure_has_diverged(tmp_path):
    result = compare(tmp_path, lambda build, seed, log: build(4) and float("inf"))
    assert {row.status for row in result.rows} == {logs.DIVERGED}


@pytest.mark.parametrize(
    "given, message",
    [
        ({"data": [1, 2]}, "data and train exclude each other"),
        ({"model": "vit"}, "model and train exclude each other"),
        ({"steps": 3}, "steps: 'test_own_loop:steady' has no argument 'steps'"),
        ({"placements": ["pre-norm", "peri-norm"]}, "placements: a training loop of your own is given norm and opt"),
        ({"metric": "f1"}, "metric 'f1' does not say whether more is better: give metric_direction higher or lower"),
        ({"train": lambda model: 1.0}, "is called as train"),
        ({"train": lambda build, seed, log, steps: 1.0}, "takes steps: give steps"),
        ({"train": lambda build, seed, log, steps, lr=1.0: 1.0, "seconds": 1.0}, "has no argument 'seconds'"),
        ({"train": lambda build, seed, log, seconds, steps=2: 1.0, "steps": 1}, "takes seconds: give seconds"),
        ({"twin": True}, "twin and train exclude each other: the training loop makes its start from the seed"),
        ({"norms": None, "variants": [{"norm": "dyt", "start": "permuted"}]}, "start 'permuted': the training loop"),
        ({"norms": None, "variants": [{"norm": "dyt", "warmup": 0.5}]}, "has its own warmup, and 'test_own_loop:stea"),
        ({"norms": None, "variants": [{"norm": "dyt", "batch": 5}]}, "has its own batch, and"),
        ({"norms": None, "variants": [{"norm": "dyt", "lr": 0.5}]}, "has its own lr, and"),
        ({"warmup": 0.2}, "warmup and train exclude each other: the training loop decides that itself"),
        ({"clip": 0.5}, "clip and train exclude each other"),
        ({"weight_decay": 0.0}, "weight_decay and train exclude each other"),
        ({"decay": 0.1}, "decay and train exclude each other"),
        ({"length": 7}, "length and train exclude each other"),
        ({"precision": "bf16"}, "precision and train exclude each other"),
        ({"allow_leak": True}, "allow_leak and train exclude each other"),
        ({"trials": 3}, "trials: 'test_own_loop:steady' has no argument 'lr'"),
        ({"norms": ["rmsnrm"]}, "did you mean 'rmsnorm'"),
    ],
)
def test_what_does_not_fit_it_is_refused_before_anything_is_done(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        compare(tmp_path / "out", **{"train": steady, **given})
    assert not (tmp_path / "out").exists()


def test_the_command_takes_it_as_well(tmp_path):
    words = ["--train", "test_own_loop:steady", "--norm", "layernorm", "dyt", "--seeds", "2", "--engine", "here"]
    assert cli.main(["compare", *words, "--out", str(tmp_path / "command")]) == 0
    compare(tmp_path / "call", steady)
    assert all_numbers(tmp_path / "command") == all_numbers(tmp_path / "call")


def test_the_last_loss_is_that_of_held_out_data_where_there_is_one():
    log = own.Log(SimpleNamespace(write=lambda *_, **__: None), lambda: False)
    told = []
    for values in ({"loss": 4.0}, {"speed": 1.0}, {"loss": 3.0, "val_loss": 5.0}, {"val_loss": 6.0}, {"loss": 2.0}):
        log(1, **values)
        told.append((log.last, log.best))
    assert told == [(4.0, math.inf), (4.0, math.inf), (5.0, 5.0), (6.0, 5.0), (6.0, 5.0)]
