"""The course of a comparison, after its runs: which steps are timed."""

import argparse
import json
from types import SimpleNamespace

import filelock
import pytest
import synthetic_logs
import torch

from normkit.lab import cli, course
from normkit.lab.files import Folder
from normkit.lab.training import speed


@pytest.fixture
def folder(tmp_path):
    return Folder(synthetic_logs.comparison(tmp_path, {"layernorm": 0.0, "rmsnorm": 0.0}, seeds=2))


def plan(train=None):
    return SimpleNamespace(settings=SimpleNamespace(train=train, ladder=None))


def test_steps_of_all_variants_that_ended_are_timed(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(speed, "measure", lambda *given: asked.append(given))
    given = plan()
    course.time_steps(given, folder)
    assert asked == [(given, folder, ["layernorm", "rmsnorm"])]
    course.time_steps(plan(train="loop.py"), folder)
    assert len(asked) == 1, "a loop of the user's own has no step that could be taken"


def test_steps_that_cannot_be_timed_are_reported(folder, monkeypatch, capsys):
    def fails(*given):
        raise RuntimeError("no room for two models")

    monkeypatch.setattr(speed, "measure", fails)
    course.time_steps(plan(), folder)
    assert "steps could not be timed: no room for two models" in capsys.readouterr().err


@pytest.mark.parametrize(("clock", "median"), [("CPU time", 2.0), ("time", 3.0)])
def test_a_round_whose_clock_stood_still_tells_nothing_and_the_others_do(clock, median, folder):
    rounds = [[1.0, 1.0, 2.0, 3.0]] * 12 + [[0.0, 0.0, 9.0, 9.0]]
    folder.speed.write_text(json.dumps({"clock": clock, "rounds": {"rmsnorm": rounds}}))
    found = speed.ratios(folder.root, "layernorm")["rmsnorm"]
    assert (found.median, found.rounds, found.clock) == (median, 12, clock)


@pytest.mark.parametrize("row", [[1.0, 1.0, 2.0], [1.0, 1.0, -2.0, 2.0], [1.0, 1.0, "fast", 2.0], 4])
def test_rounds_that_are_none_are_not_read(row, folder):
    folder.speed.write_text(json.dumps({"clock": "CPU time", "rounds": {"rmsnorm": [[1.0, 1.0, 2.0, 2.0], row]}}))
    assert speed.ratios(folder.root, "layernorm") == {}


def test_a_comparison_is_locked_in_a_folder_of_folders_that_are_not_there_yet(tmp_path):
    with course.lock_folder(str(tmp_path / "runs" / "one")):
        assert (tmp_path / "runs" / "one").is_dir()


def test_a_disk_without_locks_is_named_where_filelock_is_old(tmp_path, monkeypatch):
    def refused(lock):
        raise NotImplementedError("FileSystem does not appear to support flock; use SoftFileLock instead")

    monkeypatch.setattr(filelock.FileLock, "acquire", refused)
    with pytest.raises(ValueError, match="is on a disk without locks; name another folder with"):
        course.lock_folder(str(tmp_path / "runs"))


def test_a_report_is_made_again_where_a_comparison_is_written_when_no_folder_is_named():
    parser = argparse.ArgumentParser()
    cli.add_commands(parser.add_subparsers())
    assert parser.parse_args(["report"]).folder == parser.parse_args(["compare"]).out == cli.WHERE


def test_steps_are_raced_in_an_order_that_turns():
    order, times = [], {"a": 1.0, "b": 2.0, "c": 5.0}
    steps = [lambda name=name, time=time: (order.append(name), (time, 10 * time))[1] for name, time in times.items()]
    of_b, of_c = speed.race(*steps)
    assert of_b == [[1.0, 10.0, 2.0, 20.0]] * speed.ROUNDS
    assert of_c == [[1.0, 10.0, 5.0, 50.0]] * speed.ROUNDS
    rounds = [order[at : at + 3] for at in range(3 * speed.WARM_UP, len(order), 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    places = {name: [one.index(name) for one in rounds[:6]] for name in times}
    assert {name: sorted(where) for name, where in places.items()} == {name: [0, 0, 1, 1, 2, 2] for name in times}


@pytest.mark.parametrize("rung", [0.25, 1, 4.0])
def test_times_are_those_of_their_rung_and_baseline(rung, folder, monkeypatch):
    monkeypatch.setattr(speed, "stepper", lambda *given: None)
    monkeypatch.setattr(speed, "race", lambda *steps: [[[1.0, 1.0, 2.0, 2.0]]] * (len(steps) - 1))
    settings = SimpleNamespace(threads=torch.get_num_threads(), device="cpu")
    plan = SimpleNamespace(baseline="layernorm", rung=rung, settings=settings, variant=lambda name: None)
    speed.measure(plan, folder, ["layernorm", "rmsnorm"])
    assert list(speed.read_rounds(folder.root, "layernorm", rung)) == ["rmsnorm"]
    assert speed.read_rounds(folder.root, "layernorm", 2.0) == speed.read_rounds(folder.root, "rmsnorm", rung) == {}
