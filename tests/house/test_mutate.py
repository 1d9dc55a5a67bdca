"""Deliberate mistakes are made one at a time, and those are told that no test sees."""

import os
import pathlib
import shutil
import subprocess
import sys

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "mutate.py"
PACKAGE = '''
LIMIT = 3


class Counter:
    """Up to a limit."""

    def __init__(self, start=0, *, quick=False):
        self.at, self.quick = start, quick

    def up(self):
        if self.at >= LIMIT:
            raise ValueError(f"no further than {LIMIT}")
        self.at = self.at + 1
        return self.at


def unused(x):
    return x * 2
'''
TESTS = """
import pytest
from normkit import Counter

def test_counts():
    counter = Counter()
    assert [counter.up() for _ in range(3)] == [1, 2, 3]

def test_stops():
    with pytest.raises(ValueError):
        Counter(3).up()

def test_fails_anyway():
    assert Counter().up() == 7
"""


def test_mistakes_are_made_and_what_no_test_sees_is_told(tmp_path):
    for path, text in {"src/normkit/__init__.py": PACKAGE, "tests/test_counter.py": TESTS}.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "src/normkit/contract").mkdir()
    (tmp_path / "tools").mkdir()
    shutil.copy(TOOL, tmp_path / "tools")
    command = [sys.executable, "tools/mutate.py", "--all"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    told, _, survivors = run.stdout.partition("not seen:\n")
    assert run.returncode == 1, run.stdout + run.stderr
    assert "66.7% of 9 mistakes are seen (of 9, seed 0)" in told
    assert sorted(line.partition("__init__.py:")[2] for line in survivors.splitlines()) == [
        "19:11 in unused: x * 2  ->  x / 2",
        "19:15 in unused: 2  ->  3",
        "8:41 in Counter.__init__: False  ->  True",
    ]
    assert "2:8 in the module: 3  ->  4\n    found by tests/test_counter.py::test_stops" in told
