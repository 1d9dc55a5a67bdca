"""Files of the package, imported by name."""

from __future__ import annotations

import importlib
from typing import Any


def own_file(module: str) -> Any:
    """Import a file of the package; where its own lines are refused, the error begins with file and line."""
    try:
        return importlib.import_module(module)
    except (TypeError, ValueError) as error:  # which the command line takes for a refusal of what was typed
        import traceback

        frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        places = [f"{code.co_filename}:{line}" for code, line in frames if code.co_name == "<module>"]
        raise ValueError(f"{[module, *places][-1]}: {error}") from error
