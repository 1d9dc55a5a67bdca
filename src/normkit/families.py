"""Whole things beside methods, found by their files: flows, samplers, strategies, steps of text, signals, rules.

A family is a mapping from names to what the files of one or two folders hold under one Python name: `glow.py` with a
``FLOW`` in it is the flow "glow". A package enters its own by an entry point, a script by an assignment.

>>> from normkit import families
>>> sorted(families.KINDS)
['flow', 'rule', 'sampler', 'signal', 'strategy', 'text-step']
>>> families.family("flow").summary("glow")
'Couplings of images at several scales, of which half of the numbers leave after each.'
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from normkit.loading import own_file

HOME = Path(__file__).parent
KINDS = {
    "flow": "density.FLOWS",
    "sampler": "density.SAMPLERS",
    "strategy": "federated.plans.PLANS",
    "text-step": "text.folder.STEPS",
    "signal": "watching.sites.SIGNALS",
    "rule": "watching.diagnosis.RULES",
}
LINES = {
    "flow": {
        "flow-inverse": "a flow is inverted, and has its determinant",
        "flow-memory": "a flow whose inputs are recomputed gives the same gradient",
        "flow-saved": "what a flow depends on moves it, and a saved one gives the same bits",
        "flow-options": "a flow refuses an option that it does not take",
    },
    "sampler": {
        "sampler-repeats": "a sampler says what it needs, and repeats itself from a seed",
        "sampler-law": "chains that begin with a normal law's mean and covariance move, and keep both",
    },
    "strategy": {"strategy-parts": "the parts of a strategy are methods, and it refuses options that it does not take"},
    "text-step": {"step-built": "a step of text is built again of its settings, and has a class name of its own"},
    "signal": {
        "signal-read": "a signal reads as many numbers as it names, and leaves what it reads as it was",
        "signal-names": "no other signal reads numbers of the same name",
    },
    "rule": {
        "rule-silent": "a rule is silent where nothing was seen",
        "rule-numbers": "a rule asks for numbers that the watch or a signal reads",
    },
}
for _kind, _lines in LINES.items():
    _lines[f"{_kind}-goldens"] = "it gives the numbers of its goldens"


class Family(MutableMapping[str, Any]):
    """Things of one kind by their names, each imported when it is first asked for.

    Args:
        kind: what one is called; installed packages enter theirs as ``[project.entry-points."normkit.KIND"]``,
            with ``_`` for a hyphen.
        holds: the name that a file gives it.
        folders: where the files are, below the package.
    """

    def __init__(self, kind: str, holds: str, *folders: str):
        self.kind, self.holds, self.folders = kind, holds, folders
        self._own: dict[str, Any] = {}

    @functools.cached_property
    def files(self) -> dict[str, str]:
        """The module of each name; nothing is imported."""
        marker = re.compile(rf"^(?:def |class )?{self.holds}\b", re.MULTILINE)
        paths = [path for folder in self.folders for path in HOME.joinpath(folder).glob("[!_]*.py")]
        return {
            path.stem.replace("_", "-"): ".".join(["normkit", *path.relative_to(HOME).with_suffix("").parts])
            for path in sorted(paths)
            if marker.search(path.read_text(encoding="utf-8"))
        }

    @functools.cached_property
    def points(self) -> dict[str, Any]:
        """What installed packages enter, by name; what fails, or has a name that is taken, is left out."""
        from importlib.metadata import entry_points

        points: dict[str, Any] = {}
        for point in (point for group in groups(self.kind) for point in entry_points(group=group)):
            holder = self.files.get(point.name) or getattr(points.get(point.name), "value", None)
            try:
                if holder:
                    raise ValueError(f"the name {point.name!r} is taken by {holder}")
                point.load()
                points[point.name] = point
            except Exception as error:
                warnings.warn(f"the {self.kind} {point.value} could not be loaded: {error!r}", stacklevel=1)
        return points

    def __getitem__(self, name: str) -> Any:
        if name in self._own:
            return self._own[name]
        if name in self.files:
            return getattr(own_file(self.files[name]), self.holds)
        return self.points[name].load()

    def __setitem__(self, name: str, value: Any) -> None:
        self._own[name] = value

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self.files, *self.points, *self._own}))

    def __len__(self) -> int:
        return len({*self.files, *self.points, *self._own})

    def module(self, name: str) -> str | None:
        """The module that holds one; None of what a script assigned and no module holds."""
        if name in self._own:
            return getattr(self._own[name], "__module__", None)
        return self.files[name] if name in self.files else self.points[name].module

    def exempt(self, name: str) -> Mapping[str, str]:
        """The cases of the contract that one need not keep, with reasons: ``EXEMPT`` in its module."""
        return getattr(sys.modules.get(self.module(name) or ""), "EXEMPT", {})

    def about(self, name: str) -> str:
        """What is written of one: the docstring of its class, or that of its file."""
        held = self[name]
        if name in self._own or isinstance(held, type):
            return inspect.getdoc(held) or ""
        return inspect.getdoc(importlib.import_module(self.module(name) or "")) or ""

    def summary(self, name: str) -> str:
        """The first line of it."""
        return self.about(name).partition("\n")[0]


def groups(kind: str) -> list[str]:
    """Return the groups of entry points that enter a kind: setuptools takes no hyphen in one, others may.

    >>> groups("text-step")
    ['normkit.text_step', 'normkit.text-step']
    """
    return list(dict.fromkeys([f"normkit.{kind.replace('-', '_')}", f"normkit.{kind}"]))


def family(kind: str) -> Family:
    """Return the family of a kind."""
    module, _, holds = KINDS[kind].rpartition(".")
    return getattr(importlib.import_module(f"normkit.{module}"), holds)


def family_of_line(line: str) -> Family | None:
    """Return the family that a line of the contract is asked of; None for a line of methods."""
    return next((family(kind) for kind, lines in LINES.items() if line in lines), None)
