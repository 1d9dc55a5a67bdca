"""Which path a call takes: a kernel, torch's own, or the formula. Who watches is told, and the formula can be forced.

>>> import torch
>>> from normkit import ops
>>> with formula_only(), watch() as taken:
...     y = ops.rms_norm(torch.ones(2, 4), (4,))
>>> [str(path) for path in taken]
['formula: it is asked for']

An op decides once, and what it decides is what is told. Watching and forcing hold for this thread (or task) alone, and
cost nothing where nobody does either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch

from normkit import kernels

__all__ = ["Path", "formula_only", "interpreted", "tell", "watch", "watching"]


class Path(NamedTuple):
    """What an op took: ``by`` names it, ``why`` tells why it was not a kernel of this library (None: it was)."""

    op: str
    by: str
    why: str | None

    def __str__(self) -> str:
        """Tell what ran, and why not a kernel."""
        return self.by if self.why is None else f"{self.by}: {self.why}"


class Watch(NamedTuple):
    """Who is told, why every op is to take its formula, where it is, and whether the GPU's kernels run on a CPU."""

    told: tuple[list[Path], ...] = ()
    forced: str | None = None
    interpreted: bool = False

    def tell(self, op: str, by: str, why: str | None) -> None:
        """Add a path to every list."""
        for paths in self.told:
            paths.append(Path(op, by, why))

    def decide(self, op: str, why: str | None, kernel: Callable[[], str], own: Callable[[], Any] | None) -> str | None:
        """Return the reason against the kernel, the forced one first, after all have been told.

        own: what torch's own function would give in its place, or None.
        """
        why = self.forced or why
        if self.told:
            instead = "formula" if own is None or own() is None else "torch's own"
            self.tell(op, kernel() if why is None else instead, why)
        return why


_always = Watch(interpreted=True) if kernels.setting() == "interpret" else None
_watch: ContextVar[Watch | None] = ContextVar("normkit.ops.paths", default=_always)
watching = _watch.get  # None where nobody is


def tell(op: str, by: str, why: str) -> None:
    """Let whoever watches know what an op took that had no choice."""
    now = _watch.get()
    if now is not None:
        now.tell(op, by, why)


@contextmanager
def watch() -> Iterator[list[Path]]:
    """Within it, every path taken by an op is added to the list, also those of backward passes."""
    taken: list[Path] = []
    with _set(told=taken):
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
def untold() -> Iterator[None]:
    """Within it, nobody is told: what runs is not the user's call."""
    now = _watch.get() or Watch()
    token = _watch.set(now._replace(told=()))
    try:
        yield
    finally:
        _watch.reset(token)


@contextmanager
def _set(told: list[Path] | None = None, forced: str | None = None, interpreted: bool = False) -> Iterator[None]:
    now = _watch.get() or Watch()
    all_told = now.told if told is None else (*now.told, told)
    token = _watch.set(Watch(all_told, forced or now.forced, interpreted or now.interpreted))
    try:
        with _backward_on_this_thread():
            yield
    finally:
        _watch.reset(token)


def _backward_on_this_thread() -> AbstractContextManager:
    """Autograd has a thread of its own for each GPU, which would not know of the watch."""
    return nullcontext() if torch.compiler.is_compiling() else torch.autograd.set_multithreading_enabled(False)
