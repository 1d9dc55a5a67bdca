"""How torch computes where nothing says so: on how many threads, on which device, and compiled or not."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch


class Turns:
    """A lock that a thread may take again, and that is free in a process forked while another thread has it.

    >>> turns = Turns()
    >>> with turns, turns:
    ...     pass
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        """Take another lock where a thread has this one that was not forked along."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


_stances: list[Any] = []  # one for each that is within uncompiled(), all the first one's
_counting = Turns()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within it torch computes on ``count`` threads: on one, where calls are small, since several wait for each other.

    >>> with threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def processor_by_default() -> AbstractContextManager[object]:
    """Within it tensors are made on the processor where no device is named, whatever ``set_default_device`` says.

    >>> with torch.device("meta"), processor_by_default():
    ...     torch.ones(1).device
    device(type='cpu')
    """
    usual = torch.get_default_device().type == "cpu"
    return nullcontext() if usual else torch.device("cpu")  # the context of a device is asked at each call of torch


@contextmanager
def uncompiled() -> Iterator[None]:
    """Within it what is compiled runs as it is written, in all threads, until the last that is within it leaves.

    Torch's compiler is not imported for it where nothing is.
    """
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with _counting:
        _stances.append(_stances[0] if _stances else torch.compiler.set_stance("force_eager"))
    try:
        yield
    finally:
        with _counting:
            stance = _stances.pop()
            if not _stances:
                stance.__exit__(None, None, None)
