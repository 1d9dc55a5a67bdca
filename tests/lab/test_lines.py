"""What a process that hands out runs and one that trains say to each other, without the processes."""

import signal
import time
from types import SimpleNamespace

import pytest

from normkit.lab.training import engines


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
    local = SimpleNamespace(workers=[None, worker], active={"a": 1}, own_server=False)
    began = time.monotonic()
    engines.Local.close(local)
    (first, most), *rest = told
    assert worker.line.closed
    assert (first, rest) == ("join", [("kill",), ("join",)])
    assert engines.GRACE - (time.monotonic() - began) - 1 < most <= engines.GRACE
    assert (local.workers, local.active) == ([], {})
