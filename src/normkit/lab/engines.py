"""Where runs are carried out: in this process, in processes beside it, or on Ray's machines.

An engine has ``free`` places and some ``active`` runs; :meth:`start` begins one, :meth:`wait` returns those that ended.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

import torch

from normkit.lab import files, loop
from normkit.lab.plan import Run, Settings
from normkit.optional import library

Ended = list[tuple[Run, dict[str, Any]]]
_stop: Any = None  # in a worker: the event that asks it to stop
_busy = threading.Lock()  # in a worker: held while it trains


class Engine(Protocol):
    """What the schedule needs of an engine."""

    active: dict[Any, Run]

    @property
    def free(self) -> int:
        """How many more runs it could start."""

    def start(self, run: Run) -> None:
        """Begin a run."""

    def wait(self) -> Ended:
        """Wait until something ends; return it."""

    def close(self) -> None:
        """Ask what is running to save itself and stop, and wait for that."""


class Here:
    """One run after the other in this process: the way of torchrun, whose processes all do the same."""

    def __init__(self, settings: Settings, root: str):
        self.settings, self.root = settings, root
        self.active: dict[Any, Run] = {}

    @property
    def free(self) -> int:
        """One place."""
        return 1 - len(self.active)

    def start(self, run: Run) -> None:
        """Keep the run for :meth:`wait`."""
        self.active[run.name] = run

    def wait(self) -> Ended:
        """Train."""
        ((name, run),) = self.active.items()
        result = loop.train(run, self.settings, self.root)
        del self.active[name]
        return [(run, result)]

    def close(self) -> None:
        """Nothing is left running."""


class Local:
    """Processes beside this one, one run each. A process that dies takes its own run with it, and is replaced."""

    def __init__(self, settings: Settings, root: str):
        self.settings, self.root = settings, root
        # a fork server imports torch once, for all workers, while this process still prepares
        self.context = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
        if os.name == "posix":
            self.context.set_forkserver_preload(["normkit.lab.loop", "accelerate"])
        self.stop = self.context.Event()
        self.places = [self._place(i) for i in range(settings.workers)]
        self.active: dict[Any, Run] = {}
        self.at: dict[Any, int] = {}

    def _place(self, number: int) -> futures.ProcessPoolExecutor:
        gpus = torch.cuda.device_count() if self.settings.device == "cuda" else 0
        arguments = (self.stop, number % gpus if gpus else None)
        return futures.ProcessPoolExecutor(1, self.context, initializer=_begin_worker, initargs=arguments)

    @property
    def free(self) -> int:
        """How many processes have nothing to do."""
        return len(self.places) - len(self.active)

    def start(self, run: Run) -> None:
        """Hand a run to a process that has nothing to do."""
        place = next(i for i in range(len(self.places)) if i not in self.at.values())
        future = self.places[place].submit(_train_in_worker, run, self.settings, self.root)
        self.active[future], self.at[future] = run, place

    def wait(self) -> Ended:
        """Wait for the first run that ends."""
        ended = futures.wait(list(self.active), timeout=1.0, return_when=futures.FIRST_COMPLETED).done
        results = [(self._result(future, self.at.pop(future)), future) for future in ended]
        return [(self.active.pop(future), result) for result, future in results]

    def _result(self, future: Any, place: int) -> dict[str, Any]:
        try:
            return future.result()
        except BrokenProcessPool:
            self.places[place].shutdown(wait=False)
            self.places[place] = self._place(place)
            return lost(self.active[future], self.root, "the process was killed, perhaps for want of memory")

    def close(self) -> None:
        """Let every run save itself."""
        self.stop.set()
        for place in self.places:
            place.shutdown(cancel_futures=True)


def _begin_worker(stop: Any, gpu: int | None) -> None:
    global _stop
    _stop = stop
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all processes; the first one passes it on by the event
    if gpu is not None:
        torch.cuda.set_device(gpu)
        os.environ["ACCELERATE_TORCH_DEVICE"] = f"cuda:{gpu}"
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """End this process once the one that waits for it is gone, and a run that goes on has saved itself."""
    multiprocessing.parent_process().join()  # type: ignore[union-attr]
    _stop.set()
    with _busy:
        os._exit(1)


def _train_in_worker(run: Run, settings: Settings, root: str) -> dict[str, Any]:
    with _busy:
        return loop.train(run, settings, root, _stop.is_set)


class Ray:
    """Tasks of Ray, on the cluster that ``RAY_ADDRESS`` names or on this machine.

    The folder of the comparison should be one that all machines see; where it is not, logs come back with the results.
    """

    def __init__(self, settings: Settings, root: str):
        ray = library("ray")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        if not ray.is_initialized():
            cluster = os.environ.get("RAY_ADDRESS")
            cores = None if cluster else settings.workers * settings.threads
            ray.init(
                address=cluster,
                num_cpus=cores,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        self.ray, self.settings, self.root = ray, settings, os.path.abspath(root)
        gpus = 1 if settings.device == "cuda" else 0
        self.task = ray.remote(num_cpus=settings.threads, num_gpus=gpus, max_retries=0)(_train_on_ray)
        self.active: dict[Any, Run] = {}

    @property
    def free(self) -> int:
        """How many more runs the cluster could take; Ray itself finds the machine."""
        return self.settings.workers - len(self.active)

    def start(self, run: Run) -> None:
        """Hand a run to Ray."""
        self.active[self.task.remote(run, self.settings, self.root)] = run

    def wait(self) -> Ended:
        """Wait for the first run that ends."""
        done, _ = self.ray.wait(list(self.active), num_returns=1, timeout=1.0)
        results = [(self._result(task), task) for task in done]
        return [(self.active.pop(task), result) for result, task in results]

    def _result(self, task: Any) -> dict[str, Any]:
        try:
            result, name, lines = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            return lost(self.active[task], self.root, f"Ray: {str(error).splitlines()[0]}")
        path = files.Folder(self.root).log(name)
        if not path.is_file():
            path.write_text(lines)
        return result

    def close(self) -> None:
        """Cancel what is running; its checkpoints stay."""
        for task in self.active:
            self.ray.cancel(task, force=True)
        self.ray.shutdown()


def _train_on_ray(run: Run, settings: Settings, root: str) -> tuple[dict[str, Any], str, str]:
    files.Folder(root).create()
    result = loop.train(run, settings, root)
    return result, run.name, files.Folder(root).log(run.name).read_text()


def lost(run: Run, root: str, why: str) -> dict[str, Any]:
    """Write the end of a run that could not do so itself."""
    written = files.Log(files.Folder(root).log(run.name))
    try:
        return written.write("end", status="crashed", error=why)
    finally:
        written.close()


ENGINES: dict[str, Callable[[Settings, str], Engine]] = {"local": Local, "ray": Ray}


def make(settings: Settings, root: str) -> Engine:
    """Return the engine that the settings name; under torchrun, this process."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or settings.workers == 0:
        return Here(settings, root)
    return ENGINES[settings.engine](settings, root)
