"""The processes that torchrun has started, which share each run: who speaks, who goes first, and how all leave."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

MESHES: list[Any] = []  # of the comparison that is at work


def processes() -> int:
    """Return how many processes share each run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_spread() -> bool:
    """Whether there are several."""
    return processes() > 1


def is_first() -> bool:
    """Whether this is the process that writes and speaks."""
    return int(os.environ.get("RANK", "0")) == 0


def in_turn(device: str) -> AbstractContextManager[Any]:
    """Let the first process go before the others."""
    from accelerate import PartialState

    return PartialState(cpu=device == "cpu").main_process_first() if is_spread() else nullcontext()


@contextmanager
def leaving() -> Iterator[None]:
    """End at its end what torch.distributed has begun within: after all processes, or alone where one was stopped.

    Its threads would otherwise live on while Python ends, and one that then lets go of a tensor of Python's aborts.
    """
    from torch import distributed

    if not is_spread() or distributed.is_initialized():  # then it is whoever has begun it that ends it
        yield
        return
    try:
        yield
        if distributed.is_initialized():
            distributed.barrier()
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
            forget()


def mesh(device: str) -> Any:
    """Return all processes as a row of devices, for a model that is sharded over them."""
    from torch.distributed.device_mesh import init_device_mesh

    MESHES.append(init_device_mesh(device, (processes(),)))
    return MESHES[-1]


def forget() -> None:
    """Let go of what keeps the group of processes alive, and have Accelerate look for them anew the next time."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    while MESHES:
        getattr(MESHES.pop(), "_pg_registry", {}).clear()  # torch's caches keep the meshes
    gc.collect()  # a sharded model refers to itself
