"""A training that is going on, seen from another process by the file that it writes."""

import io
import json

import pytest
import rich.console
import torch
from torch import nn
from torch.nn import functional as F
from trainings import mlp, points

import normkit as nk
from normkit import cli
from normkit.watching import live, load
from normkit.watching.diagnosis import diagnose, write_finding
from normkit.watching.finding import Finding


def killed():
    """Half of its units are dead."""
    model = mlp()
    model[2].bias.data -= 9
    return model


class Steps:
    """A training that goes on by some steps when asked."""

    def __init__(self, to, model=None):
        self.model = killed() if model is None else model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.seen = nk.watch(self.model, self.optimizer, every=1, to=to).start()

    def go(self, count):
        for step in range(count):
            x, y = points(step)
            F.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()


def test_a_run_is_followed_from_before_it_begins_to_its_end(tmp_path):
    place = tmp_path / "runs"
    shown = live.Live(place)
    assert not shown.look()
    assert shown.picture().startswith(f"waiting for a run: no file of a watch in {place} yet")
    steps = Steps(place)
    steps.go(3)
    assert not shown.look()
    path = place / "watch.jsonl"
    lines = shown.picture().split("\n")
    assert lines[0] == f"Sequential, {sum(p.numel() for p in steps.model.parameters()):,} parameters, 4 blocks"
    assert lines[1] == f"step 2, written 0 s ago: {path}"
    assert "1. units are dead  (likely, since step 1)" in lines
    with path.open("a") as file:
        file.write('{"event": "sample", "st')
    assert not shown.look()
    assert shown.reading.store.steps == [1, 2], "half a line is none"
    path.write_text(path.read_text().rpartition("{")[0])
    steps.go(2)
    shown.look()
    assert shown.reading.store.steps == [1, 2, 3, 4]
    steps.seen.stop()
    assert shown.look()
    assert ", ended" in shown.picture()
    assert str(shown.diagnosis) == str(load(path).diagnosis()) == str(diagnose(steps.seen.history()))


def test_each_block_has_the_course_of_its_own_first_number(tmp_path):
    steps = Steps(tmp_path / "runs")
    steps.go(6)
    history = steps.seen.history()
    (*_, what), *rows = live.table(history)
    drawn = {row[0]: row[-1] for row in rows}
    first = what.removesuffix(" so far")
    assert drawn == {block: live.course(history.series(block, first)).ljust(live.COURSE) for block in drawn}
    assert len(set(drawn.values())) == len(drawn) == 4


def test_a_file_that_is_written_anew_is_read_anew(tmp_path):
    steps, shown = Steps(tmp_path, nn.Sequential(nn.Linear(8, 2))), live.Live(tmp_path)
    steps.seen.store.keep, steps.seen.room = 8, None
    for _ in range(30):
        steps.go(1)
        shown.look()
    steps.seen.stop()
    shown.look()
    assert shown.reading.store.steps == load(tmp_path / "watch.jsonl").steps
    assert len(shown.reading.store.steps) <= 17


def test_the_newest_of_several_runs_is_shown(tmp_path):
    for name in ("one", "two"):
        steps = Steps(tmp_path / name / "seen.jsonl", nn.Sequential(nn.Linear(8, 2)))
        steps.go(2)
        steps.seen.stop()
    (tmp_path / "other.jsonl").write_text(json.dumps({"event": "start"}))
    shown = live.Live(tmp_path)
    shown.look()
    assert shown.path == tmp_path / "two" / "seen.jsonl"
    assert "1 older beside it" in shown.picture()


def test_a_low_terminal_shows_some_of_the_blocks(tmp_path):
    steps = Steps(tmp_path, mlp(depth=12))
    steps.go(2)
    steps.seen.stop()
    shown = live.Live(tmp_path)
    shown.look()
    lines = shown.picture(height=12, width=60).split("\n")
    assert len(lines) <= 12
    assert lines[-1].startswith("24 "), "the last block is among them"


@pytest.mark.parametrize("leaves", [False, True])
def test_a_terminal_is_drawn_until_the_run_ends_or_the_user_leaves(tmp_path, monkeypatch, leaves):
    steps = Steps(tmp_path)
    steps.go(2)
    screen = io.StringIO()
    terminal = rich.console.Console(file=screen, force_terminal=True, width=60, height=40)
    monkeypatch.setattr(rich.console, "Console", lambda **_: terminal)

    def nap(_):
        if leaves:
            raise KeyboardInterrupt
        steps.go(1)
        steps.seen.stop()

    monkeypatch.setattr(live.time, "sleep", nap)
    assert live.follow(tmp_path).of("dead-units")
    assert (", ended" in screen.getvalue()) is not leaves


def test_the_command_prints_once_where_there_is_no_terminal(tmp_path, capsys):
    assert cli.main(["watch", str(tmp_path), "--once"]) == 2
    assert "holds no file that a watch has written" in capsys.readouterr().err
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    assert cli.main(["watch", str(script)]) == 2
    assert "train.py was not written by a watch; nk.watch(..., to='runs/one')" in capsys.readouterr().err
    steps = Steps(tmp_path, mlp(norm="layernorm"))
    steps.go(3)
    assert cli.main(["watch", str(tmp_path)]) == 0
    assert "Nothing found in 2 samples of 10 layers, steps 1 to 2" in capsys.readouterr().out
    steps = Steps(tmp_path)
    steps.go(3)
    assert cli.main(["watch", str(tmp_path / "watch.jsonl"), "--once"]) == 1
    assert "try: batchnorm" in capsys.readouterr().out


def test_a_second_watch_of_a_file_begins_it_anew_in_whatever_folder(tmp_path):
    path = tmp_path / "run" / "of" / "today" / "seen.jsonl"
    for count in (5, 2):
        steps = Steps(path, nn.Sequential(nn.Linear(8, 2)))
        steps.go(count)
        steps.seen.stop()
        assert load(path).steps == [*range(1, count + 1)]


def test_words_are_wrapped_below_their_number_and_no_name_is_cut():
    name = "model.decoder.layers.17.self_attention.query_projection"
    finding = Finding("a title", 1.0, (name,), f"Of {name} all is ill, and of others a part too.", leads="much " * 20)
    first, *lines = write_finding(3, finding, width=40).split("\n")
    assert first == "3. a title"
    assert f"   {name}" in lines
    assert all(line.startswith("   ") and (len(line) <= 40 or name in line) for line in lines)
    assert max(len(line) for line in lines if name not in line) > 30
