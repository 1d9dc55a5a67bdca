"""Every normalization method of deep learning in one place: verified, fast, swappable in one line.

>>> import normkit as nk
>>> norm = nk.RMSNorm(768)                 # a plain module
>>> norm = nk.create("derf", 768)          # the same catalogue by name, as a config does
>>> "powernorm" in nk.methods(room="activation")
True

It enters a plugin of pytest, which leaves its asserts as they are: PYTEST_DONT_REWRITE.
"""

import ast
import functools
import importlib
import pathlib
import re

__version__ = "0.1.0"
HERE = {  # what is there at all times, and where from; imported at the first look, so that help needs no torch
    **dict.fromkeys(["Card", "card", "create", "method", "methods"], "normkit.catalog"),
    **dict.fromkeys(["Estimator", "Fitted", "Loss", "Method", "Parametrization", "Text", "Transform"], "normkit.kinds"),
    **dict.fromkeys(["catalog", "ops", "statistics"], "normkit"),
    "Norm": "normkit.norm",
}
WHOLE_MODELS = [
    "surgery.exact.folding",
    "surgery.exact.converting",
    "surgery.recognition.recognize",
    "surgery.exact.readying",
    "surgery.replacement.swapping",
    "surgery.exact.fusing",
    "surgery.removal.removing",
    "surgery.statistics.batch_statistics",
    "surgery.statistics.repair",
    "surgery.statistics.adapting",
    "surgery.quantizing.weights",
    "surgery.quantizing.caching",
    "surgery.keeping",
    "parallel",
    "watching",
    "lab.api",
    "claims",
]  # what is done to models: each module's __all__


@functools.cache
def _exports() -> dict[str, str]:
    """What there is beside methods, by name: ``__all__`` of rooms and modules is read, and none of them imported."""
    catalog = importlib.import_module("normkit.catalog")
    exports: dict[str, str] = {}
    for place in [*catalog.rooms(), *WHOLE_MODELS]:
        folder = catalog.HOME.joinpath(*place.split("."))
        path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for names in re.findall(r"^__all__ = (\[[^]]*\])", text, re.MULTILINE):
            exports |= dict.fromkeys(ast.literal_eval(names), f"normkit.{place}")
    return exports


def __getattr__(name: str):
    """Find what is here, a method's class or function, or what a room exports; it is imported at the first look-up."""
    if _is_module(name):
        return importlib.import_module(f"normkit.{name}")
    if name in HERE:
        return globals().setdefault(name, getattr(importlib.import_module(HERE[name]), name))
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'normkit' has no attribute {name!r}")
    catalog = importlib.import_module("normkit.catalog")
    if name == "__all__":  # which only `from normkit import *` asks for: then every method is imported
        return sorted({*HERE, *_exports(), *catalog.entry_names()})
    if catalog.method_by_name(name) is None and name in _exports():  # whose look-up reads the files of every room
        return getattr(importlib.import_module(_exports()[name]), name)
    entry = catalog.entry_by_name(name)
    if entry is None:
        raise AttributeError(f"module 'normkit' has no attribute {name!r}")
    return entry


def _is_module(name: str) -> bool:
    place = pathlib.Path(__file__).with_name(name)
    return name.islower() and name[0] != "_" and (place.is_dir() or place.with_suffix(".py").is_file())


def __dir__():
    catalog = importlib.import_module("normkit.catalog")
    return sorted({*globals(), *HERE, *_exports(), *catalog.entry_names()})
