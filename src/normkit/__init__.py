"""Every normalization method of deep learning in one place: verified, fast, swappable in one line.

>>> import normkit as nk
>>> norm = nk.RMSNorm(768)                 # a plain module
>>> norm = nk.create("derf", 768)          # the same catalogue by name, as a config does
>>> "powernorm" in nk.methods(room="activation")
True
"""

import ast
import functools
import importlib

from normkit import catalog, ops, statistics  # noqa: F401
from normkit.catalog import Card, card, create, method, methods  # noqa: F401
from normkit.kinds import Estimator, Fitted, Loss, Method, Parametrization, Transform  # noqa: F401
from normkit.norm import Norm  # noqa: F401

__version__ = "0.1.0"
HERE = ["Card", "Estimator", "Fitted", "Loss", "Method", "Norm", "Parametrization", "Transform"]
HERE += ["card", "catalog", "create", "method", "methods", "ops", "statistics"]


WHOLE_MODELS = [
    "surgery.recognition.recognize",
    "surgery.swapping",
    "surgery.fusing",
    "lab.api",
]  # what is done to models: each module's __all__


@functools.cache
def _exports() -> dict[str, str]:
    """What there is beside methods, by name: ``__all__`` of rooms and modules is read, and none of them imported."""
    found: dict[str, str] = {}
    for place in [*catalog.rooms(), *WHOLE_MODELS]:
        folder = catalog.HOME.joinpath(*place.split("."))
        path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        for node in ast.parse(path.read_text()).body if path.is_file() else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found |= dict.fromkeys(ast.literal_eval(node.value), f"normkit.{place}")
    return found


def __getattr__(name: str):
    """Find a method's class or function, or what a room exports; its file is imported at the first look-up."""
    if name == "__all__":  # which only `from normkit import *` asks for: then every method is imported
        return sorted([*HERE, *_exports(), *catalog.entry_names()])
    if name in catalog.rooms() and (catalog.HOME / name).is_dir():
        return importlib.import_module(f"normkit.{name}")
    if name in _exports():
        return getattr(importlib.import_module(_exports()[name]), name)
    found = None if name.startswith("__") else catalog.entry_named(name)
    if found is None:
        raise AttributeError(f"module 'normkit' has no attribute {name!r}")
    return found


def __dir__():
    return sorted([*globals(), *_exports(), *catalog.entry_names()])
