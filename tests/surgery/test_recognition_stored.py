"""What was recognized is remembered for the next process, and is never believed where anything is otherwise."""

import itertools
import json
import os
import stat
import threading
import time

import pytest
import torch
from near_misses import Rms
from test_recognition_near_misses_memory import Clamped, ReadsItsClass
from torch import distributed, nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from normkit.surgery.recognition import memory, stored
from normkit.surgery.recognition.recognize import examine


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache folder, and a process that remembers nothing."""
    monkeypatch.delenv("NORMKIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(memory, "_verdicts", {})
    return tmp_path / "normkit" / "recognized"


def forget():
    memory._verdicts.clear()


def test_the_next_process_reads_what_its_owner_alone_can_read(folder):
    first = examine(Rms())
    forget()
    again = examine(Rms())
    assert (first.how, again.how) == ("probed", "remembered")
    assert first.to_dict() | {"how": "remembered"} == again.to_dict()
    assert torch.equal(first.module(torch.ones(2, 12)), again.module(torch.ones(2, 12)))
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_is_no_norm_is_read_as_such(folder):
    first = examine(Clamped(8))
    forget()
    assert examine(Clamped(8)).why_not == first.why_not


@pytest.mark.parametrize("damage", ["half", "empty", "words", "list", "another"])
def test_a_damaged_file_is_probed_anew_and_written_anew(folder, damage):
    first = examine(Rms())
    (file,) = folder.iterdir()
    text = file.read_text()
    held = json.loads(text)
    held["verdict"]["kwargs"]["eps"] = 0.5
    texts = {"half": text[: len(text) // 2], "empty": "", "words": "no", "list": "[]", "another": json.dumps(held)}
    file.write_text(texts[damage])
    forget()
    again = examine(Rms())
    assert again.how == "probed"
    assert again.kwargs == first.kwargs
    assert json.loads(file.read_text()) == json.loads(text)


def test_a_file_of_another_module_is_not_believed(folder):
    examine(Rms())
    (mine,) = folder.iterdir()
    examine(ReadsItsClass())
    (other,) = set(folder.iterdir()) - {mine}
    other.write_bytes(mine.read_bytes())
    forget()
    assert examine(ReadsItsClass()).how == "probed"


def test_other_versions_and_off_are_not_read(folder, monkeypatch):
    examine(Rms())
    forget()
    monkeypatch.setenv("NORMKIT_CACHE", "off")
    assert examine(Rms()).how == "probed"
    monkeypatch.delenv("NORMKIT_CACHE")
    forget()
    monkeypatch.setattr(stored, "_versions", lambda: "others")
    assert examine(Rms()).how == "probed"
    assert len(list(folder.iterdir())) == 2


def test_off_writes_nothing(folder, monkeypatch):
    monkeypatch.setenv("NORMKIT_CACHE", "false")
    assert examine(Rms())
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_left_out(folder):
    folder.parent.write_text("a file where the folder would be")
    assert examine(Rms())
    assert os.path.isfile(folder.parent)


def test_a_user_without_a_home_keeps_nothing(folder, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(stored.Path, "home", homeless)
    assert examine(Rms())


def test_what_is_old_or_too_much_is_deleted_and_what_is_read_stays(folder, monkeypatch):
    monkeypatch.setattr(stored, "MOST", 3)
    folder.mkdir(parents=True)
    long_ago = time.time() - 86400 * (stored.DAYS + 1)
    for place in range(6):
        path = folder / f"{place}.json"
        path.write_text("{}")
        os.utime(path, (long_ago, long_ago) if place < 2 else (time.time() - 60 * (9 - place),) * 2)
    (folder / "mine.txt").write_text("of somebody else")
    stored.write("new", {"name": None})
    assert {path.name for path in folder.iterdir() if path.stem in "012345"} == {"4.json", "5.json"}
    assert (folder / "mine.txt").exists()
    os.utime(stored._file("new"), (long_ago, long_ago))
    assert stored.read("new") == {"name": None}
    stored.prune.cache_clear()
    stored.prune(folder)
    assert stored.read("new") == {"name": None}


class RefusesGroups(nn.BatchNorm1d):
    def forward(self, x):
        if distributed.is_initialized():
            raise NotImplementedError
        return super().forward(x)


@pytest.fixture
def group():
    """A group of this process alone."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


class RefusesOthers(nn.BatchNorm1d):
    def forward(self, x):
        if distributed.is_initialized() or distributed.get_world_size() > 1 or distributed.get_rank(None) > 0:
            raise NotImplementedError
        return super().forward(x)


def test_a_norm_that_asks_how_many_processes_it_is_one_of_is_answered_as_if_alone(folder):
    distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        assert examine(RefusesOthers(8)).name == "batchnorm"
        assert (distributed.get_world_size(), distributed.get_rank()) == (2, 1)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("kind", [nn.SyncBatchNorm, RefusesGroups])
def test_a_norm_is_the_same_while_there_is_a_group_of_processes(folder, group, kind):
    """On processors torch's refuses to train in a group."""
    match = examine(kind(8))
    assert (match.name, match.how, distributed.is_initialized()) == ("batchnorm", "probed", True)


class DrawsInVain(Rms):
    def forward(self, x):
        torch.rand(())
        return super().forward(x)


class DrawsForManyAxes(Rms):
    def forward(self, x):
        if x.ndim == 4:
            torch.rand(())
        return super().forward(x)


class DrawsAtTimes(Rms):
    calls = itertools.count()

    def forward(self, x):
        if next(self.calls) % 7 == 0:
            torch.rand(())
        return super().forward(x)


@pytest.fixture
def idle():
    """Another thread, which waits."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.fixture
def drawing():
    """Another thread, which draws random numbers all the time, as one that trains does."""
    ended = threading.Event()

    def draw():
        while not ended.wait(0.02):
            torch.rand(())

    thread = threading.Thread(target=draw)
    thread.start()
    yield
    ended.set()
    thread.join()


def test_random_numbers_of_another_thread_are_not_held_against_a_norm(folder, drawing):
    assert examine(Rms()).name == "rmsnorm"
    assert not memory._verdicts  # nor is it held to draw none
    assert not folder.exists()
    assert "it draws random numbers" in examine(DrawsInVain()).why_not


def test_of_what_draws_for_some_shapes_no_other_thread_is_held_to_draw_instead(folder, drawing):
    assert "it draws random numbers" in examine(DrawsForManyAxes()).why_not


@pytest.mark.parametrize("kind", [DrawsInVain, DrawsForManyAxes, DrawsAtTimes])
def test_what_draws_beside_a_thread_that_does_not_is_no_norm(folder, idle, kind):
    assert "it draws random numbers" in examine(kind()).why_not
    assert not memory._verdicts  # the thread may draw now and then


def test_what_draws_is_remembered_where_no_other_thread_draws(folder, monkeypatch):
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # whatever threads pytest has, or other tests left
    assert "it draws random numbers" in examine(DrawsInVain()).why_not
    assert examine(DrawsInVain()).how == "remembered"
