"""What Python runs as it starts where this folder is first on its path: `traced.py` sees what a test's processes run.

A process leaves a file in the folder that NORMKIT_TRACED names while it lives, and writes its functions to another
there at a signal and as it ends; what one that is killed ran after its last signal is lost.
"""

import atexit
import cProfile
import os
import signal
import time
from multiprocessing import util
from pathlib import Path
from types import CodeType

FOLDER = os.environ.get("NORMKIT_TRACED", "")
SOURCE = str(Path(__file__).resolve().parents[2] / "src" / "normkit")
calls = cProfile.Profile(builtins=False)


def begin() -> None:
    """Forget what the process that this one is forked from has run."""
    calls.clear()
    calls.enable()
    own("living").touch()


def end_as_a_fork(_: object) -> None:
    """Of multiprocessing, which ends without `atexit`, and forgets at its start what was to be done at the end."""
    util.Finalize(None, end, exitpriority=0)


def end() -> None:
    """Write the last functions."""
    own("living").unlink(missing_ok=True)
    write()
    calls.disable()


def write(*signalled: object) -> None:
    """Write beside and rename, for the tests' own process may look at any time."""
    codes = [entry.code for entry in calls.getstats() if isinstance(entry.code, CodeType)]
    calls.clear()
    lines = [f"{code.co_filename}\t{code.co_qualname}\n" for code in codes if code.co_filename.startswith(SOURCE)]
    if os.path.isdir(FOLDER):
        own("part").write_text("".join(lines))
        own("part").rename(own(f"{time.monotonic_ns()}.ran"))


def own(ending: str) -> Path:
    """A file of this process."""
    return Path(FOLDER, f"{os.getpid()}.{ending}")


if FOLDER:
    signal.signal(signal.SIGUSR1, write)
    atexit.register(end)
    os.register_at_fork(after_in_child=begin)
    util.register_after_fork(calls, end_as_a_fork)
    begin()
