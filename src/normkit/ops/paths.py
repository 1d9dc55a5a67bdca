"""Which path a call takes: a kernel, torch's own, or the formula. It can be watched, and the formula can be forced.

>>> import torch
>>> from normkit import ops
>>> with formula_only(), watch() as taken:
...     y = ops.rms_norm(torch.ones(2, 4), (4,))
>>> [str(path) for path in taken]
['formula: it is asked for']

An op decides once, and that is what is recorded. Watching and forcing hold for this thread (or task) alone, and cost
nothing where nobody does either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch

from normkit import kernels

__all__ = ["Path", "formula_only", "interpreted", "record", "watch", "watching"]


class Path(NamedTuple):
    """What an op took: ``by`` names it, ``why`` is the reason against a kernel of this library (None: it was one)."""

    op: str
    by: str
    why: str | None

    def __str__(self) -> str:
        """What ran, and why not a kernel."""
        return self.by if self.why is None else f"{self.by}: {self.why}"


class Watch(NamedTuple):
    """The lists of who watches, why every op takes its formula, if it does, and if the GPU's kernels run on a CPU."""

    lists: tuple[list[Path], ...] = ()
    forced: str | None = None
    interpreted: bool = False

    def record(self, op: str, by: str, why: str | None) -> None:
        """Add a path to every list."""
        for paths in self.lists:
            paths.append(Path(op, by, why))

    def decide(self, op: str, why: str | None, kernel: Callable[[], str], own: Callable[[], Any] | None) -> str | None:
        """Return the reason against the kernel, the forced one first, once it is recorded.

        own: what torch's own function would give in its place, or None.
        """
        why = self.forced or why
        if self.lists:
            instead = "formula" if own is None or own() is None else "torch's own"
            self.record(op, kernel() if why is None else instead, why)
        return why


_always = Watch(interpreted=True) if kernels.setting() == "interpret" else None
_watch: ContextVar[Watch | None] = ContextVar("normkit.ops.paths", default=_always)
watching = _watch.get  # None where nobody is


def record(op: str, by: str, why: str) -> None:
    """Record what an op took that had no choice."""
    now = _watch.get()
    if now is not None:
        now.record(op, by, why)


@contextmanager
def watch() -> Iterator[list[Path]]:
    """Within it, every path taken by an op is added to the list, also those of backward passes."""
    taken: list[Path] = []
    with _set(watcher=taken):
        yield taken


@contextmanager
def formula_only(why: str = "it is asked for") -> Iterator[None]:
    """Within it, every op takes its formula."""
    with _set(forced=why):
        yield


@contextmanager
def interpreted() -> Iterator[None]:
    """Within it, CPU tensors go to the GPU's kernels, which Triton interprets: slow, and the same numbers.

    It needs Triton, and no GPU. `NORMKIT_KERNELS=interpret` in the environment does so always.
    """
    with _set(interpreted=True):
        yield


@contextmanager
def unwatched() -> Iterator[None]:
    """Within it, nothing is recorded: what runs is not the user's call."""
    now = _watch.get() or Watch()
    token = _watch.set(now._replace(lists=()))
    try:
        yield
    finally:
        _watch.reset(token)


@contextmanager
def _set(watcher: list[Path] | None = None, forced: str | None = None, interpreted: bool = False) -> Iterator[None]:
    now = _watch.get() or Watch()
    lists = now.lists if watcher is None else (*now.lists, watcher)
    token = _watch.set(Watch(lists, forced or now.forced, interpreted or now.interpreted))
    try:
        with _backward_on_this_thread():
            yield
    finally:
        _watch.reset(token)


def _backward_on_this_thread() -> AbstractContextManager:
    """Autograd has a thread of its own for each GPU, which would not know of the watch."""
    return nullcontext() if torch.compiler.is_compiling() else torch.autograd.set_multithreading_enabled(False)
