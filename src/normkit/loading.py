"""Files of the package and modules of the user's, imported by name."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any


def find_in_current_folder() -> None:
    """Let Python import modules of the current folder, as ``python -m`` does; one that was deleted has none."""
    with contextlib.suppress(FileNotFoundError):
        if "" not in sys.path and os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())


def own_file(module: str) -> Any:
    """Import a file of the package; where its own lines are refused, the error begins with file and line."""
    try:
        return importlib.import_module(module)
    except (TypeError, ValueError) as error:  # which the command line takes for a refusal of what was typed
        import traceback

        frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        places = [f"{code.co_filename}:{line}" for code, line in frames if code.co_name == "<module>"]
        raise ValueError(f"{[module, *places][-1]}: {error}") from error
