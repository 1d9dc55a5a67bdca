"""The training of one run: plain, on Accelerate.

The same function trains in a worker of the local engine, in a task of Ray, and in every process that torchrun starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from normkit.lab import files, logs
from normkit.lab.plan import ladder
from normkit.lab.plan.plan import Run
from normkit.lab.plan.settings import Settings
from normkit.lab.training import own
from normkit.lab.training.federated import Federated
from normkit.lab.training.single import Training


def train(run: Run, settings: Settings, root: str, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Train ``run``, from its checkpoint if there is one; return the last line of its log.

    Whatever goes wrong inside is that line's ``error``, so that other runs go on. A folder that cannot be written to is
    no fault of the run: it is interrupted, and ``unwritable`` says which file it was.
    """
    folder, settings = files.Folder(root), ladder.at(settings, run.rung)
    try:
        torch.set_num_threads(settings.threads)
        accelerator = make_accelerator(settings)
        with lock_run(folder.lock_of(run.name)) if accelerator.is_main_process else nullcontext():
            return attempt(run, settings, folder, accelerator, stop)
    except OSError as error:
        facts = error.errno, error.strerror or str(error), str(error.filename or folder.root)
        return {"event": logs.END, "status": logs.INTERRUPTED, "error": str(error), "unwritable": facts}


@contextmanager
def lock_run(path: Path) -> Iterator[None]:
    """Wait for another process that still trains this run, and keep others out."""
    from filelock import FileLock

    lock = FileLock(path)
    with files.writing(path):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def attempt(
    run: Run, settings: Settings, folder: files.Folder, accelerator: Any, stop: Callable[[], bool]
) -> dict[str, Any]:
    """Train, and tell a crash; of errors, only those of a full disk leave."""
    if settings.train:
        return own.train(run, settings, folder, stop)
    kind = Federated if settings.federated else Training
    try:
        return kind(run, settings, folder, accelerator).train(stop)
    except Exception as error:
        if files.is_full(error):
            raise
        return own.write_crash(logs.Log(folder.log(run.name) if accelerator.is_main_process else None), error)


def make_accelerator(settings: Settings) -> Any:
    """Let Accelerate find the device and the other processes."""
    from accelerate import Accelerator

    return Accelerator(cpu=settings.device == "cpu", mixed_precision=settings.precision)
