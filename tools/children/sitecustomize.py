"""What Python runs as it starts where this folder is first on its path: `traced.py` sees what a test's processes run.

Their functions go to a file in the folder that NORMKIT_TRACED names, as they end; of one that is killed nothing is
known.
"""

import atexit
import cProfile
import os
from multiprocessing import util
from pathlib import Path
from types import CodeType

FOLDER = os.environ.get("NORMKIT_TRACED", "")
SOURCE = str(Path(__file__).resolve().parents[2] / "src" / "normkit")
calls = cProfile.Profile(builtins=False)


def write() -> None:
    """Write beside and rename, for the test's own process may look at any time."""
    calls.disable()
    codes = [entry.code for entry in calls.getstats() if isinstance(entry.code, CodeType)]
    lines = [f"{code.co_filename}\t{code.co_qualname}\n" for code in codes if code.co_filename.startswith(SOURCE)]
    if lines and os.path.isdir(FOLDER):
        file = Path(FOLDER, f"{os.getpid()}.part")
        file.write_text("".join(lines))
        file.rename(file.with_suffix(".ran"))


def as_a_fork(_: object) -> None:
    """What a process of multiprocessing that was forked runs as it begins: it ends without `atexit`."""
    util.Finalize(None, write, exitpriority=0)


if FOLDER:
    atexit.register(write)
    util.register_after_fork(calls, as_a_fork)
    calls.enable()
