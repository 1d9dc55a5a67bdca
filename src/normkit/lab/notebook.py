"""What a notebook shows while runs go on: the bars of the terminal below the cell, until all is done."""

from __future__ import annotations

import contextvars
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from normkit.optional import at_hand

WIDTH = 110  # characters, as a notebook's page has room for


@contextmanager
def animate(draw: Callable[[], Any], every: float = 0.5) -> Iterator[None]:
    """Draw over and over, in a thread that speaks for the cell which has begun it."""
    place = at_hand("IPython.display").display(as_text(draw()), raw=True, display_id=True)
    done = threading.Event()

    def follow() -> None:
        while not done.wait(every):
            place.update(as_text(draw()), raw=True)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(follow,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        place.update({"text/plain": ""}, raw=True)


def as_text(drawing: Any) -> dict[str, str]:
    """Return what a notebook takes for plain text."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=WIDTH, force_jupyter=False)
    console.print(drawing)
    return {"text/plain": console.file.getvalue()}  # type: ignore[attr-defined]
