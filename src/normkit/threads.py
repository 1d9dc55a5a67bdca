"""How torch computes where nothing says so: on how many threads, and on which device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


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
