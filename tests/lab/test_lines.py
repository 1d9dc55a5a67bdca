"""What a process that hands out runs and one that trains say to each other, without the processes."""

import signal
import time
from collections import UserDict, namedtuple
from types import SimpleNamespace

import pytest
import torch

from normkit.lab.training import engines, single


class Line:
    """One end of a pipe: gives what it was made of, keeps what it is sent, and is cut when there is no more."""

    def __init__(self, *given):
        self.given, self.sent, self.closed = list(given), [], False

    def poll(self, seconds=0.0):
        if not self.given:
            raise EOFError
        return True

    def recv(self):
        return self.given.pop(0)

    def send(self, what):
        self.sent.append(what)

    def close(self):
        self.closed = True


@pytest.fixture
def signals():
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_each_run_that_comes_is_trained_as_the_settings_say_and_its_result_goes_back(signals, monkeypatch):
    monkeypatch.setattr(engines.handed, "unpack", lambda things: None)
    monkeypatch.setattr(engines.loop, "train", lambda run, settings, root, stop: (run, settings, root, callable(stop)))
    line = Line("first", "second")
    engines.work(line, "settings", "root", None, b"")
    assert line.sent == [("first", "settings", "root", True), ("second", "settings", "root", True)]


def test_a_run_has_its_time_to_save_itself_before_it_is_killed():
    told = []
    process = SimpleNamespace(join=lambda *most: told.append(("join", *most)), kill=lambda: told.append(("kill",)))
    worker = SimpleNamespace(line=Line(), process=process, proven=True)
    local = SimpleNamespace(workers=[None, worker], active={"a": 1})
    began = time.monotonic()
    engines.Local.close(local)
    (first, most), *rest = told
    assert worker.line.closed
    assert (first, rest) == ("join", [("kill",), ("join",)])
    assert engines.GRACE - (time.monotonic() - began) - 1 < most <= engines.GRACE
    assert (local.workers, local.active) == ([], {})


def test_what_ray_is_handed_is_what_its_task_takes(monkeypatch, tmp_path):
    monkeypatch.setattr(engines.handed, "unpack", lambda things: said.append(things))
    monkeypatch.setattr(engines.loop, "train", lambda run, settings, root: {"trained": (run.name, settings, root)})
    said, run, root = [], SimpleNamespace(name="first"), str(tmp_path)
    folder = engines.files.Folder(root)
    folder.create()
    folder.log("first").write_text("its log")
    task = SimpleNamespace(remote=lambda *given: repr(engines._train_on_ray(*given)))
    own = SimpleNamespace(task=task, settings="settings", root=root, things=b"things", active={})
    engines.Ray.start(own, run)
    assert own.active == {repr(({"trained": ("first", "settings", root)}, "first", "its log")): run}
    assert said == [b"things"]


Both = namedtuple("Both", "inputs, wanted")


def mine(batch, first, count):
    accelerator = SimpleNamespace(process_index=first, num_processes=count, device="cpu")
    return single.Training._mine(SimpleNamespace(accelerator=accelerator), batch)


@pytest.mark.parametrize(("first", "rows"), [(0, [0, 2, 4]), (1, [1, 3])])
def test_a_process_has_its_own_rows_of_whatever_a_batch_is(first, rows):
    x = torch.arange(5)
    for batch in (x, [x, x], (x, x), Both(x, x), {"inputs": x, "wanted": x}, UserDict(inputs=x, wanted=x)):
        own = mine(batch, first, 2)
        assert type(own) is type(batch)
        parts = [own] if isinstance(own, torch.Tensor) else own.values() if hasattr(own, "values") else own
        assert [part.tolist() for part in parts] == [rows] * len(parts)


def test_what_has_no_rows_is_for_all_processes_and_one_process_has_all_as_it_is():
    x, weight = torch.arange(5), torch.tensor(0.5)
    assert mine({"weight": weight, "name": "a"}, 1, 2) == {"weight": weight, "name": "a"}
    assert mine(x, 0, 1) is x


def test_one_process_agrees_with_itself_to_the_last_digit():
    alone = SimpleNamespace(accelerator=SimpleNamespace(num_processes=1, device="cpu"))
    assert single.Training._first_value(alone, 0.1) == 0.1
