"""What commands write survives a kill at any time: a few points of each; tools/kills.py has twenty."""

import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "kills.py"
COMMANDS = ["fit", "text fit", "text map", "swap", "fold", "quantize", "watch"]


def test_nothing_is_lost_where_a_command_is_killed():
    """All of them in one process, which imports once what it forks."""
    pytest.importorskip("rapidfuzz")
    pytest.importorskip("safetensors")
    done = subprocess.run([sys.executable, TOOL, "--points", "2", "--seed", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"{command}: 2 kills, 0 faults" for command in COMMANDS]
