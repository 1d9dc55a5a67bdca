"""Write down the public surface, ``tests/house/api.json``: ``python tools/api.py``.

Each public name beside the methods, whose arguments are written down with what they answer, and its signature: a test
compares them, so that a change of a name, an argument or a default is seen before a user sees it.
"""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import normkit as nk
from normkit import check

PATH = Path(__file__).parents[1] / "tests/house/api.json"


def signature(thing: Any) -> str:
    """Return what a thing is called with; what it is where it is not called."""
    if not callable(thing):
        return type(thing).__name__
    names = inspect.signature(thing).parameters.values()
    return ", ".join(re.sub(r" at 0x\w+", "", str(name.replace(annotation=name.empty))) for name in names)


def surface() -> dict[str, str]:
    """Return all public names with their signatures, and the checks that methods of other packages make."""
    names = {name: signature(getattr(nk, name)) for name in {*nk.HERE, *nk._exports()}}
    own = {name: thing for name, thing in vars(check).items() if inspect.isfunction(thing) and name[0] != "_"}
    return names | {f"check.{name}": signature(thing) for name, thing in own.items()}


if __name__ == "__main__":
    PATH.write_text(json.dumps(surface(), indent=0, sort_keys=True) + "\n", encoding="utf-8")
