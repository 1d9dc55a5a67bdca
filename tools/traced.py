"""Write down which functions of the package each test runs, for `mutate.py`, which then takes those tests first.

    python tools/traced.py                 # of all tests, on two processes, anew
    python tools/traced.py tests/surgery   # of some, to what was written before

Of each test that goes over many cases two are run, and more while they take little. The ones that a method's name
leads to, its contract and its goldens, are left out. What the processes of a test run counts as the test's own.
"""

from __future__ import annotations

import contextlib
import cProfile
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from types import CodeType

import pytest

from mutate import ROOT, SOURCE, TRACES, function_of, goes_over_methods, spent

CASES, ENOUGH = 2, 1.0  # of a test, and the seconds within which there are more
PATIENCE = 0.3  # seconds that a process is given to write what it ran: one that waits in C may not hear the signal


class Tracer:
    """Of each test the functions that it called, and how long each of its cases took."""

    def __init__(self, file: Path):
        self.file, self.ran, self.seconds = file, defaultdict[str, set[str]](set), defaultdict[str, list[float]](list)
        self.folder, self.elsewhere = tempfile.TemporaryDirectory(), set[tuple[str, str]]()
        _put_first(Path(__file__).parent / "children")
        os.environ["NORMKIT_TRACED"] = self.folder.name

    def pytest_collection_modifyitems(self, items):
        """Leave out what `mutate.py` takes by other rules."""
        items[:] = [item for item in items if not goes_over_methods(item)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """See every call of the package, those of fixtures too."""
        taken = self.seconds[function_of(item)]
        if len(taken) >= CASES and sum(taken) > ENOUGH:
            item.add_marker(pytest.mark.skip("as many of its cases were run as are wanted"))
            return (yield)
        calls, before = cProfile.Profile(builtins=False), spent()
        calls.enable()
        try:
            return (yield)
        finally:
            calls.disable()
            taken.append(spent() - before)
            codes = {entry.code for entry in calls.getstats() if isinstance(entry.code, CodeType)}
            ran = {(code.co_filename, code.co_qualname) for code in codes if code.co_filename.startswith(str(SOURCE))}
            self.elsewhere |= self.of_processes()
            self.ran[function_of(item)] |= {named(*function) for function in ran | self.elsewhere}
            self.elsewhere.clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self):
        """Ask processes before their test may end them."""
        self.elsewhere |= self.of_processes()

    def of_processes(self) -> set[tuple[str, str]]:
        """The functions of the processes that the test has started, and of those that go on for the next."""
        folder = Path(self.folder.name)
        for living in folder.glob("*.living"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(living.stem), signal.SIGUSR1)
                asked = time.monotonic()
                while not [*folder.glob(f"{living.stem}.*.ran")] and time.monotonic() < asked + PATIENCE:
                    time.sleep(0.001)
                continue
            living.unlink(missing_ok=True)
        files = [*folder.glob("*.ran")]
        lines = [line for file in files for line in file.read_text().splitlines()]
        for file in files:
            file.unlink()
        return {(file, function) for file, _, function in (line.partition("\t") for line in lines)}

    def pytest_sessionfinish(self):
        """Write what was seen: of each test its longest case, how many there were, and its functions by number."""
        numbers: dict[str, int] = {}
        tests = {
            test: [
                max(self.seconds[test]),
                len(self.seconds[test]),
                *(numbers.setdefault(name, len(numbers)) for name in sorted(ran)),
            ]
            for test, ran in self.ran.items()
        }
        if tests:
            self.file.write_text(json.dumps({"functions": list(numbers), "tests": tests}))


def named(file: str, function: str) -> str:
    """A function by its file and the name that `mutate.py` gives it."""
    return f"{Path(file).relative_to(ROOT)}:{function.replace('.<locals>', '')}"


def _put_first(folder: Path) -> None:
    """Let the next Python look for modules in a folder first."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def pytest_configure(config):
    """Trace where tests are run; a process that hands them out runs none."""
    if not config.getoption("numprocesses", None):
        config.pluginmanager.register(Tracer(ROOT / TRACES.replace("*", str(time.time_ns()))))


if __name__ == "__main__":
    _put_first(Path(__file__).parent)
    tests = sys.argv[1:] or [str(ROOT / "tests")]
    for file in () if sys.argv[1:] else ROOT.glob(TRACES):
        file.unlink()
    sys.exit(pytest.main([*tests, "-q", "-n", "2", "-p", "traced", "-p", "no:cacheprovider"]))
