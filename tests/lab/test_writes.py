"""Killed, or out of disk, wherever something is written: the same command then goes on to the same numbers."""

import dataclasses
import errno
import os
import re
from pathlib import Path

import pytest
from helpers import all_numbers

from normkit import cli
from normkit.lab import request
from normkit.lab.report import page as report
from normkit.lab.training import engines

WORDS = ["compare", "--model", "decoder:dim=8,depth=1,heads=1", "--length", "8", "--batch", "2", "--steps", "4"]
WORDS = [*WORDS, "--seeds", "1", "--lr", "0.01", "--norm", "layernorm", "--threads", "1"]


class Killed(BaseException):
    """What a process that is gone would not notice."""


class Disk:
    """Stands between the lab and its files; at one place it kills the process or is full from there on.

    A place is a kind of file, what is done with it, and for the how manieth time. A write that fails is half done.
    """

    def __init__(self, monkeypatch, error=None, place=None):
        self.error, self.place, self.failing = error, place, False
        self.places = []
        self.opened, self.text, self.unlink = Path.open, Path.write_text, Path.unlink
        self.replace, self.fsync = os.replace, os.fsync
        monkeypatch.setattr(Path, "open", lambda path, *a, **k: self.open(path, *a, **k))
        monkeypatch.setattr(Path, "write_text", lambda path, text, **k: self.write_text(path, text, **k))
        monkeypatch.setattr(Path, "unlink", lambda path, **k: self.done(path, "unlink", self.unlink, path, **k))
        monkeypatch.setattr(os, "replace", lambda old, new: self.done(new, "replace", self.replace, old, new))
        monkeypatch.setattr(os, "fsync", lambda number: self.done(self.of(number), "fsync", self.fsync, number))

    def of(self, number):
        return os.readlink(f"/proc/self/fd/{number}")

    def fails(self, path, what):
        """Whether it fails here; deleting and renaming take no room."""
        kind = re.sub(r"\.partial-\w+$", ".partial", Path(path).name.split("--seed1")[-1])
        count = sum(1 for k, w, _ in self.places if (k, w) == (kind, what))
        self.places.append((kind, what, count))
        self.failing = self.failing or self.places[-1] == self.place
        return self.failing and (self.error is Killed or what in ("write", "write_text", "fsync"))

    def raised(self):
        return Killed() if self.error is Killed else OSError(errno.ENOSPC, "No space left on device")

    def done(self, path, what, act, *given, **more):
        if self.fails(path, what):
            raise self.raised()
        return act(*given, **more)

    def write_text(self, path, text, **given):
        if self.fails(path, "write_text"):
            self.text(path, text[: len(text) // 2], **given)
            raise self.raised()
        return self.text(path, text, **given)

    def open(self, path, mode="r", *given, **more):
        file = self.opened(path, mode, *given, **more)
        return Handle(self, path, file) if mode in ("ab", "wb") else file


class Handle:
    """A file, of which the disk hears when it is written to."""

    def __init__(self, disk, path, file):
        self.disk, self.path, self.file = disk, path, file

    def write(self, data):
        if self.disk.fails(self.path, "write"):
            self.file.write(bytes(data)[: len(data) // 2])
            raise self.disk.raised()
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


@pytest.fixture(autouse=True)
def in_this_process_with_a_checkpoint_at_every_step(monkeypatch):
    settled = request.settings_from
    monkeypatch.setitem(engines.ENGINES, "local", engines.Here)
    monkeypatch.setattr(request, "settings_from", lambda *a: dataclasses.replace(settled(*a), checkpoint_seconds=0.0))
    monkeypatch.setattr(report, "page", lambda comparison: "a page takes a while")


def command(root):
    return cli.main([*WORDS, "--out", str(root)])


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """Those of an unbroken run."""
    root = tmp_path_factory.mktemp("whole") / "out"
    with pytest.MonkeyPatch.context() as patch:
        in_this_process_with_a_checkpoint_at_every_step.__wrapped__(patch)
        assert command(root) == 0
    return all_numbers(root)


PLACES = [
    ("plan.json.partial", "write_text", 0),
    ("plan.json", "replace", 0),
    *((".jsonl", "write", count) for count in (0, 1, 2, 5, 8)),
    *((".jsonl", "fsync", count) for count in (0, 2, 3)),
    *((".pt.partial", "write", count) for count in (0, 3, 12, 60, 100, 140)),
    *((".pt.partial", "fsync", count) for count in (0, 2)),
    *((".pt", "replace", count) for count in (0, 2)),
    (".pt", "unlink", 0),
    ("index.html.partial", "write_text", 0),
    ("index.html", "replace", 0),
    ("times.json.partial", "write_text", 0),
    ("times.json", "replace", 0),
]


def test_the_places_are_those_where_the_command_writes(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    assert command(tmp_path) == 0
    assert set(PLACES) <= set(disk.places)
    assert {place[:2] for place in disk.places} - {("clear_refs", "write_text")} == {place[:2] for place in PLACES}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place)))
def test_killed_anywhere_the_same_command_goes_on_to_the_same_numbers(place, numbers, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        disk = Disk(patch, Killed, place)
        with pytest.raises(Killed):
            command(tmp_path)
        assert disk.failing
    assert command(tmp_path) == 0
    assert all_numbers(tmp_path) == numbers
    assert not list(tmp_path.rglob("*.damaged"))


@pytest.mark.parametrize("place", [p for p in PLACES if "write" in p[1] or p[1] == "fsync"], ids=str)
def test_out_of_disk_anywhere_the_command_says_so_and_later_goes_on(place, numbers, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        disk = Disk(patch, OSError, place)
        assert command(tmp_path) == 3
        assert disk.failing
    said = capsys.readouterr().err
    assert "cannot be written: No space left on device; the same command goes on once this is mended" in said
    assert "crashed" not in said
    assert not list(tmp_path.rglob("*.partial*"))
    assert command(tmp_path) == 0
    assert all_numbers(tmp_path) == numbers
    assert not list(tmp_path.rglob("*.damaged"))
