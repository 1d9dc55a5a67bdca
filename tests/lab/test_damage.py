"""Whatever befalls a folder, the same command ends with the numbers of an unbroken run, or names the file to delete."""

import contextlib
import io
import itertools
import json
import os
import pickle
import random
import re
import shutil

import pytest
import torch
from helpers import all_numbers

from normkit import cli
from normkit.lab import course, logs, request
from normkit.lab.files import Damaged, Folder, seal
from normkit.lab.plan import plan
from normkit.lab.report import page as report
from normkit.lab.report import times
from normkit.lab.training import checkpoints, engines, loop, runs, speed

WORDS = ["--model", "decoder:dim=8,depth=1,heads=1", "--length", "8", "--batch", "2", "--steps", "6", "--seeds", "2"]
WORDS = ["compare", *WORDS, "--lr", "0.01", "--norm", "layernorm", "--threads", "1"]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setitem(engines.ENGINES, "local", engines.Here)
    monkeypatch.setattr(report, "page", lambda comparison: "a page takes a while, and is made from what is read before")


def command(root, *words):
    return cli.main([*WORDS, "--out", str(root), *words])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A whole comparison, and one whose second run was interrupted at its third step."""
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engines.ENGINES, "local", engines.Here)
        assert command(root / "whole") == 0
    plan = request.plan_from(cli.parser().parse_args([*WORDS, "--out", str(root / "halfway")]))
    folder = runs.open_folder(plan, root / "halfway", [])
    asked = itertools.count(1)
    for run, stop in zip(runs.ready(plan, {}), (lambda: False, lambda: next(asked) == 3), strict=True):
        loop.train(run, plan.settings, str(folder.root), stop)
    report.write(folder.root)
    folder.lock.touch()
    folder.speed.write_text(json.dumps({"clock": "CPU time", "rounds": {"layernorm": [[1.0, 1.0, 2.0, 2.0]] * 12}}))
    course.keep_times(folder, {"runs": 2.5, "report": 0.25}, 2)
    return root


@pytest.fixture
def halfway(made, tmp_path):
    shutil.copytree(made / "halfway", tmp_path / "out")
    return Folder(tmp_path / "out")


FIRST, SECOND = "layernorm--lr0.01--seed1", "layernorm--lr0.01--seed2"
KINDS = {
    "plan": lambda folder: folder.plan,
    "log of a run that has ended": lambda folder: folder.log(FIRST),
    "log of a run that has not": lambda folder: folder.log(SECOND),
    "checkpoint": lambda folder: folder.checkpoint(SECOND),
    "lock of a run": lambda folder: folder.lock_of(SECOND),
    "lock": lambda folder: folder.lock,
    "report": lambda folder: folder.report,
    "speed": lambda folder: folder.speed,
    "times": lambda folder: folder.times,
    "runs": lambda folder: folder.runs,
    "checkpoints": lambda folder: folder.checkpoints,
}


EMPTY = ("lock of a run", "lock", "runs", "checkpoints")


def missing(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def a_folder(path):
    missing(path)
    path.mkdir()


def rewritten(change):
    def damage(path):
        there = b"" if path.is_dir() else path.read_bytes()
        missing(path)
        path.write_bytes(change(there))

    return damage


def corrupted(content):
    place, chance = len(content) // 2, random.Random(len(content))
    return content[:place] + chance.randbytes(min(16, len(content) - place)) + content[place + 16 :]


def pickled(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


class Malicious:
    """What runs code where it is unpickled."""

    def __reduce__(self):
        return (os.system, ("touch unpickled",))


DAMAGES = {
    "missing": missing,
    "a folder": a_folder,
    "empty": rewritten(lambda content: b""),
    "cut in half": rewritten(lambda content: content[: len(content) // 2]),
    "cut by a byte": rewritten(lambda content: content[:-1]),
    "zeroed": rewritten(lambda content: bytes(len(content))),
    "its second half zeroed": rewritten(lambda content: content[: len(content) // 2] + bytes(len(content) // 2)),
    "random": rewritten(lambda content: random.Random(0).randbytes(len(content))),
    "corrupted in the middle": rewritten(corrupted),
    "a bit flipped": rewritten(lambda content: flipped(content, len(content) * 2 // 3)),
    "JSON, but no events": rewritten(lambda content: b"[]\n5\nnull\n"),
    "an empty mapping": rewritten(lambda content: b"{}\n"),
    "no UTF-8": rewritten(lambda content: b"\xff\xfe\n" + content),
    "of another type": rewritten(lambda content: pickled([1, 2])),
    "malicious": rewritten(lambda content: pickled(Malicious())),
    "malicious, as before zip": rewritten(lambda content: pickle.dumps(Malicious())),
}


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :] if content else content


FEW = ("missing", "a folder", "empty")  # all that matters where the content does not
CASES = [(kind, damage) for kind in KINDS for damage in (DAMAGES if kind not in EMPTY else FEW)]


@pytest.mark.parametrize(("kind", "damage"), CASES)
def test_the_same_command_ends_with_the_numbers_of_an_unbroken_run_or_names_the_file(
    kind, damage, made, halfway, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    path = KINDS[kind](halfway)
    DAMAGES[damage](path)
    assert cli.main(["report", str(halfway.root)]) == 0 or str(path) in capsys.readouterr().err
    capsys.readouterr()
    status = command(halfway.root)
    if status:
        assert str(path) in capsys.readouterr().err
        missing(path)
        assert command(halfway.root) == 0
    assert all_numbers(halfway.root) == all_numbers(made / "whole")
    assert not list(halfway.checkpoints.glob("*.pt"))
    assert not (tmp_path / "unpickled").exists()


def test_most_damage_is_mended_without_a_word_from_the_user(made, halfway):
    for kind in ("plan", "log of a run that has ended", "log of a run that has not", "checkpoint"):
        rewritten(corrupted)(KINDS[kind](halfway))
    assert command(halfway.root) == 0
    assert all_numbers(halfway.root) == all_numbers(made / "whole")
    aside = {path.name for path in halfway.root.rglob("*.damaged")}
    assert aside == {
        "plan.json.damaged",
        *(f"{name}.jsonl.damaged" for name in (FIRST, SECOND)),
        f"{SECOND}.pt.damaged",
    }
    assert command(halfway.root, "--fresh") == 0
    assert [path.name for path in halfway.root.rglob("*.damaged")] == ["plan.json.damaged"]
    assert not halfway.speed.exists()


def test_what_was_set_aside_is_said_in_the_log_on_the_terminal_and_in_the_report(halfway, capsys):
    rewritten(corrupted)(halfway.checkpoint(SECOND))
    assert command(halfway.root) == 0
    (note,) = logs.read(halfway.log(SECOND)).of(logs.NOTE)
    assert note["text"].startswith(f"{halfway.checkpoint(SECOND)} is no checkpoint to go on from: ")
    assert note["text"].endswith("; it was set aside, and the run began again")
    assert note["text"] in capsys.readouterr().err
    assert f"{SECOND}.jsonl: {note['text']}" in report.load(halfway.root).notes


def test_a_number_changed_in_a_log_is_found(halfway, capsys):
    """Every line is still JSON, but its checksum and the seal tell."""
    log = halfway.log(FIRST)
    loss = logs.read(log).end["final_loss"]
    log.write_text(log.read_text().replace(str(loss), str(loss + 1)))
    read = logs.read(log)
    assert (read.broken, read.whole, read.damaged) == (2, False, True)
    assert report.load(halfway.root).runs[0].status == "unfinished"
    words = (
        f"{log.name} is damaged: it is not what was written, and does not count; the same command trains the run again"
    )
    assert words in report.load(halfway.root).notes
    assert cli.main(["report", str(halfway.root)]) == 0
    assert words in capsys.readouterr().out
    assert command(halfway.root) == 0
    assert logs.read(log).end["final_loss"] == loss


def test_a_checkpoint_of_another_run_is_not_gone_on_from(made, halfway):
    state = checkpoints.load(halfway.checkpoint(SECOND))
    checkpoints.save(halfway.checkpoint(SECOND), {**state, "recipe": {**state["recipe"], "lr": 0.1}})
    assert command(halfway.root) == 0
    assert all_numbers(halfway.root) == all_numbers(made / "whole")
    assert "is of another run" in logs.read(halfway.log(SECOND)).of(logs.NOTE)[0]["text"]


def test_a_log_of_another_run_is_not_taken_for_this_one(made, halfway):
    """Here with another batch; by its name alone it would be taken for one that has ended."""
    there = halfway.log(FIRST).read_text().splitlines()
    start = json.loads(there[0])
    start["recipe"]["settings"]["batch"] = 3
    halfway.log(FIRST).write_text("")
    log = logs.Log(halfway.log(FIRST))
    for event in (start, *map(json.loads, there[1:-1])):
        log.write(**event)
    log.end("done", final_loss=0.0)
    assert logs.read(halfway.log(FIRST)).whole
    assert command(halfway.root) == 0
    assert all_numbers(halfway.root) == all_numbers(made / "whole")
    assert "of another run" in logs.read(halfway.log(FIRST)).of(logs.NOTE)[0]["text"]


def test_runs_that_do_not_say_of_which_comparison_they_are_need_their_plan(halfway, capsys):
    log = halfway.log(FIRST)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    old = [{k: v for k, v in line.items() if k not in ("recipe", "seal", "crc")} for line in lines]
    log.write_text("".join(json.dumps(line) + "\n" for line in old))
    before = log.read_bytes()
    assert command(halfway.root) == 0
    halfway.plan.unlink()
    assert command(halfway.root) == 2
    said = f"{halfway.plan} is missing, and {log} is not known to be of this comparison; name another folder with --out"
    assert said in capsys.readouterr().err
    assert log.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "broken", "torn", "damaged"),
    [
        ("", 0, False, False),
        ("START", 0, False, False),
        ("START{", 1, True, False),
        ("START{\n", 1, False, True),
        ("START{\n{", 2, True, True),
        ("START\0\0\0", 1, True, False),
    ],
)
def test_half_a_line_at_the_end_is_what_a_kill_leaves_and_no_damage(content, broken, torn, damaged, tmp_path):
    (tmp_path / "x.jsonl").write_text(
        content.replace("START", '{"event": "start", "variant": "a", "lr": 1, "seed": 1}\n')
    )
    read = logs.read(tmp_path / "x.jsonl")
    assert (read.broken, read.torn, read.damaged, read.whole) == (broken, torn, damaged, False)


def content_of(kind, path, folder):
    """What is read of a file; None where it is said to be damaged, and of a log what a kill may leave of it."""
    if kind == "plan":
        return plan.plan_in(folder)
    if kind == "checkpoint":
        with contextlib.suppress(Damaged):
            return checkpoints.load(path)
        with pytest.raises(Damaged, match=re.escape(str(path))):
            checkpoints.load(path)
        return None
    if kind == "speed":
        return speed.read_rounds(folder.root, "rmsnorm") or None
    if kind == "times":
        return times.calls(folder.root) or None
    found = logs.read(path)
    return None if found.damaged else found.events


FUZZED = [kind for kind in KINDS if kind not in (*EMPTY, "report")]


@pytest.mark.parametrize("kind", FUZZED)
def test_no_flip_or_cut_of_a_file_is_read_as_something_else(kind, halfway):
    if kind == "speed":
        halfway.speed.write_text(seal(json.loads(halfway.speed.read_text())))
    path, draw = KINDS[kind](halfway), random.Random(0)
    whole, right = path.read_bytes(), content_of(kind, KINDS[kind](halfway), halfway)
    assert right
    for turn in range(300):
        at, bit = draw.randrange(len(whole)), 1 << draw.randrange(8)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :] if turn % 2 else whole[:at])
        found = content_of(kind, path, halfway)
        if kind.startswith("log"):
            named = [{key: event.get(key) for key in own} for own, event in zip(right, found or [], strict=False)]
            assert found is None or named == right[: len(found)]
            assert turn % 2 == 0 or found is None or len(found) >= len(right) - 1, "the last line alone may be lost"
        elif kind == "plan":
            assert found is None or {key: found.get(key) for key in right} == right
        else:
            assert found is None or str(found) == str(right)


def test_a_plan_and_speeds_of_before_they_had_seals_are_read(halfway):
    for path in (halfway.plan, halfway.speed):
        content = json.loads(path.read_text())
        content.pop("seal", None)
        path.write_text(json.dumps(content))
    assert plan.plan_in(halfway)["baseline"] == "layernorm"
    assert speed.read_rounds(halfway.root, "rmsnorm")
    calls = times.calls(halfway.root)
    halfway.times.write_text(json.dumps(calls))
    assert times.calls(halfway.root) == calls == [{"parts": {"runs": 2.5, "report": 0.25}, "workers": 2}]
