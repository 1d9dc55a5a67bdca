"""Write down the public surface, ``tests/house/api.json``: ``python tools/api.py``.

Each public name beside the methods, whose arguments are written down with what they answer, and its signature: a test
compares them, so that a change of a name, an argument or a default is seen before a user sees it.
"""

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

import normkit as nk
from normkit import check, families

PATH = Path(__file__).parents[1] / "tests/house/api.json"
ROOMS = (
    *("attention", "density", "federated", "gradient", "inference", "manifold"),
    *("quant", "residual", "text", "transformer", "watching", "weight"),
)


def signature(thing: Any) -> str:
    """Return what a thing is called with; what it is where it is not called."""
    if not callable(thing):
        return type(thing).__name__
    names = inspect.signature(thing).parameters.values()
    return ", ".join(re.sub(r" at 0x\w+", "", str(name.replace(annotation=name.empty))) for name in names)


def surface() -> dict[str, str]:
    """Return public names with their signatures, also in rooms, of classes, checks, and files of methods and flows."""
    given = {name: getattr(nk, name) for name in {*nk.HERE, *nk._exports()}}
    for room in ROOMS:
        module = getattr(nk, room)
        given |= {f"{room}.{name}": getattr(module, name) for name in dir(module) if name[0] != "_"}
    methods = map(inspect.getmodule, map(nk.catalog.entry_by_name, nk.catalog.entry_names()))
    beside = [path for kind in families.KINDS for path in families.family(kind).files.values()]
    for module in [check, *methods, *map(importlib.import_module, beside)]:
        own = {name: thing for name, thing in vars(module).items() if inspect.isfunction(thing)}
        place = module.__name__.removeprefix("normkit.")
        given |= {f"{place}.{name}": thing for name, thing in own.items() if thing.__module__ == module.__name__}
    for name, thing in [*given.items()]:
        if inspect.isclass(thing) and thing.__module__.startswith("normkit."):
            given |= {f"{name}.{part}": way for part, way in vars(thing).items() if inspect.isfunction(way)}
    public = {name: thing for name, thing in given.items() if "._" not in name and not inspect.ismodule(thing)}
    return {name: signature(thing) for name, thing in public.items()}


if __name__ == "__main__":
    PATH.write_text(json.dumps(surface(), indent=0, sort_keys=True) + "\n", encoding="utf-8")
