"""Which path a call takes: a kernel, torch's own, or the formula. Who watches is told, and the formula can be forced.

>>> import torch
>>> from normkit import ops
>>> with formula_only(), watched() as taken:
...     y = ops.rms_norm(torch.ones(2, 4), (4,))
>>> [str(path) for path in taken]
['formula: it is asked for']

An op decides once, and what it decides is what is told. Watching and forcing hold for this thread (or task) alone, and
cost nothing where nobody does either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from normkit import kernels

__all__ = ["Path", "formula_only", "watched", "watching"]


class Path(NamedTuple):
    """What an op took: ``by`` names it, ``why`` tells why it was not a kernel of this library (None: it was)."""

    op: str
    by: str
    why: str | None

    def __str__(self) -> str:
        """Tell what ran, and why not a kernel."""
        return self.by if self.why is None else f"{self.by}: {self.why}"


class Watch(NamedTuple):
    """Who is to be told, and why every op is to take its formula, where it is."""

    told: tuple[list[Path], ...] = ()
    forced: str | None = None

    def tell(self, op: str, by: str, why: str | None) -> None:
        """Add a path to every list."""
        for paths in self.told:
            paths.append(Path(op, by, why))

    def decide(self, op: str, why: str | None) -> str | None:
        """Return the reason against the kernel, the forced one first, after all have been told."""
        why = self.forced or why
        self.tell(op, _kernel() if why is None else "formula", why)
        return why


def _kernel() -> str:
    library = kernels.cpu()
    return "C kernel" if library is None else f"C kernel, {library.isa().decode()}"


_watch: ContextVar[Watch | None] = ContextVar("normkit.ops.paths", default=None)
watching = _watch.get  # None where nobody is


@contextmanager
def watched() -> Iterator[list[Path]]:
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
def _set(told: list[Path] | None = None, forced: str | None = None) -> Iterator[None]:
    now = _watch.get() or Watch()
    token = _watch.set(Watch(now.told if told is None else (*now.told, told), forced or now.forced))
    try:
        yield
    finally:
        _watch.reset(token)
