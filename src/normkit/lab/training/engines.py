"""Where runs are carried out: in this process, in processes beside it, or on Ray's machines.

An engine has ``free`` places and some ``active`` runs; :meth:`start` begins one, :meth:`wait` returns those that ended.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, forkserver, resource_tracker
from typing import Any, Protocol

import torch

from normkit.lab import files, logs, together
from normkit.lab.plan import handed
from normkit.lab.plan.plan import Run
from normkit.lab.plan.settings import Settings
from normkit.lab.training import loop
from normkit.optional import library

Ended = list[tuple[Run, dict[str, Any]]]
NAMES = "NORMKIT_AHEAD"  # what `ahead` is to import
STOPS = (signal.SIGINT, signal.SIGTERM)
GRACE = 30.0  # seconds that a run has to save itself
LIBRARIES = {"timm": "timm:", "transformers": "hf:"}  # of models, slow to import, and how a model of theirs is named

_unproven: int | None = None  # the server that this module has started, until a worker of it has given a result


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
        """Ask what is running to save itself and stop, and wait for that; a second call does nothing."""


class Here:
    """One run after the other in this process: also the way of torchrun, whose processes all do the same."""

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
    """Processes beside this one, one run each. One that dies takes its own run with it, and is replaced."""

    def __init__(self, settings: Settings, root: str):
        self.settings, self.root = settings, root
        self.context = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
        self.gpus = torch.cuda.device_count() if settings.device == "cuda" else 0
        self.things = handed.pack(settings.sources())
        self.workers: list[Worker | None] = [None] * settings.workers
        self.active: dict[Any, Run] = {}

    @property
    def free(self) -> int:
        """How many places have nothing to do."""
        return len(self.workers) - len(self.active)

    def start(self, run: Run) -> None:
        """Hand a run to a process that has nothing to do."""
        if os.name == "posix" and not any(self.workers):
            prepare_fork_server(self.settings)
        place = next(i for i in range(len(self.workers)) if i not in self.active)
        gpu = place % self.gpus if self.gpus else None
        worker = self.workers[place] or Worker(self.context, self.settings, self.root, gpu, self.things)
        self.workers[place], self.active[place] = worker, run
        worker.line.send(run)

    def wait(self) -> Ended:
        """Wait for the first run that ends."""
        busy = {place: worker for place in self.active if (worker := self.workers[place]) is not None}
        ready = connection.wait([w for worker in busy.values() for w in (worker.line, worker.process.sentinel)], 1.0)
        ended = [p for p, worker in busy.items() if worker.line in ready or worker.process.sentinel in ready]
        results = [(place, self._result(place, busy[place])) for place in ended]
        return [(self.active.pop(place), result) for place, result in results]

    def _result(self, place: int, worker: Worker) -> dict[str, Any]:
        with suppress(EOFError, OSError):
            if worker.line.poll():
                result = worker.line.recv()
                worker.proven = True
                return result
        self.workers[place] = None
        worker.line.close()
        worker.process.join()
        return crash_result(worker.death)

    def close(self) -> None:
        """Let every run save itself; one that does not in :data:`GRACE` seconds, or at a second Ctrl-C, is killed."""
        workers = [worker for worker in self.workers if worker is not None]
        deadline = time.monotonic() + GRACE
        try:
            for worker in workers:
                worker.line.close()
            for worker in workers:
                worker.process.join(max(0.0, deadline - time.monotonic()))
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.join()
            self.workers, self.active = [], {}
            end_fork_server(any(worker.proven for worker in workers))


class Worker:
    """A process that trains, and the line to it: runs go one way, results the other. Cut, it asks to save and leave."""

    def __init__(self, context: Any, settings: Settings, root: str, gpu: int | None, things: bytes):
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, settings, root, gpu, things))
        with without_the_script():
            self.process.start()
        self.proven = False  # whether a result has come from it
        theirs.close()

    @property
    def death(self) -> str:
        """Say of what the process died."""
        code = self.process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return f"the process was killed ({name}{', perhaps for want of memory' if name == 'SIGKILL' else ''})"
        return f"the process left with status {code}"


@contextmanager
def without_the_script() -> Iterator[None]:
    """Hide what this process was started with: a process that begins would run it again, which may be a script."""
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def work(line: Any, settings: Settings, root: str, gpu: int | None, things: bytes) -> None:
    """Train one run after the other until the line is cut, by the end of the other process too, or a SIGTERM comes."""
    asked: list[int] = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one cuts the lines
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    if os.name == "posix":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    if gpu is not None:
        torch.cuda.set_device(gpu)
        os.environ["ACCELERATE_TORCH_DEVICE"] = f"cuda:{gpu}"
    handed.unpack(things)
    with suppress(EOFError, OSError):
        while not asked:
            if line.poll(1.0):
                line.send(loop.train(line.recv(), settings, root, lambda: bool(asked) or line.poll()))


@contextmanager
def ahead(settings: Settings) -> Iterator[None]:
    """Start what workers come from while this process does something else; after an error there it is ended."""
    if os.name == "posix" and settings.workers and not together.is_spread() and ENGINES[settings.engine] is Local:
        prepare_fork_server(settings)
    try:
        yield
    except BaseException:
        end_fork_server()
        raise


def prepare_fork_server(settings: Settings) -> None:
    """Start what imports torch and the model's library once, for all workers, unless it is there.

    It leaves with this process, not at a signal that is meant for it: those are blocked where it begins, and with it in
    the workers until they can answer. Here they wait.
    """
    global _unproven
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None:
        return
    used = [name for name, start in LIBRARIES.items() if name in sys.modules or settings.model.startswith(start)]
    forkserver.set_forkserver_preload(["normkit.lab.training.ahead"])
    resource_tracker.ensure_running()  # else the server starts it, which unblocks
    try:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        os.environ[NAMES] = " ".join(used)
        try:
            forkserver.ensure_running()
            _unproven = server._forkserver_pid
        finally:
            del os.environ[NAMES]
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    except BaseException:
        _unproven = server._forkserver_pid
        end_fork_server()
        raise


def end_fork_server(proven: bool = False) -> None:
    """End it unless it is proven: it may be at its imports, and would finish them when this process is gone."""
    global _unproven
    server: Any = forkserver._forkserver
    if not proven and _unproven is not None and _unproven == server._forkserver_pid:
        os.kill(_unproven, signal.SIGKILL)
        server._stop()
    _unproven = None


class Ray:
    """Tasks of Ray, on the cluster that ``RAY_ADDRESS`` names or on this machine.

    The folder of the comparison should be one that all machines see; where it is not, logs come back with the results.
    """

    def __init__(self, settings: Settings, root: str):
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is reported to anyone; Ray reads it when it starts
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray = library("ray")
        if not ray.is_initialized():
            handler = signal.getsignal(signal.SIGTERM)
            cluster = os.environ.get("RAY_ADDRESS")
            cores = None if cluster else settings.workers * settings.threads
            ray.init(
                address=cluster,
                num_cpus=cores,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
            own_signal(signal.SIGTERM, handler)
        self.ray, self.settings, self.root = ray, settings, os.path.abspath(root)
        self.things = handed.pack(settings.sources())
        gpus = 1 if settings.device == "cuda" else 0
        self.task = ray.remote(num_cpus=settings.threads, num_gpus=gpus, max_retries=0)(_train_on_ray)
        self.active: dict[Any, Run] = {}

    @property
    def free(self) -> int:
        """How many more runs the cluster could take; Ray itself finds the machine."""
        return self.settings.workers - len(self.active)

    def start(self, run: Run) -> None:
        """Hand a run to Ray."""
        self.active[self.task.remote(run, self.settings, self.root, self.things)] = run

    def wait(self) -> Ended:
        """Wait for the first run that ends."""
        done, _ = self.ray.wait(list(self.active), num_returns=1, timeout=1.0)
        results = [(self._result(task), task) for task in done]
        return [(self.active.pop(task), result) for result, task in results]

    def _result(self, task: Any) -> dict[str, Any]:
        try:
            result, name, lines = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            return crash_result(f"Ray: {str(error).splitlines()[0]}")
        path = files.Folder(self.root).log(name)
        if not path.is_file():
            files.replace_file(path, lines)
        return result

    def close(self) -> None:
        """Cancel what is running; its checkpoints stay."""
        while self.active:
            self.ray.cancel(self.active.popitem()[0], force=True)
        self.ray.shutdown()


def own_signal(number: signal.Signals, handler: Any) -> None:
    """Answer a signal as before: Ray puts a handler of its own there, which aborts."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(number, handler)


def _train_on_ray(run: Run, settings: Settings, root: str, things: bytes) -> tuple[dict[str, Any], str, str]:
    handed.unpack(things)
    files.Folder(root).create()
    result = loop.train(run, settings, root)
    return result, run.name, files.Folder(root).log(run.name).read_text(encoding="utf-8")


def crash_result(why: str) -> dict[str, Any]:
    """Return the result of a run that could not give one itself; it may go on from its checkpoint."""
    return {"event": logs.END, "status": logs.INTERRUPTED, "error": why}


ENGINES: dict[str, Callable[[Settings, str], Engine]] = {"local": Local, "here": Here, "ray": Ray}


def make(settings: Settings, root: str) -> Engine:
    """Return the engine that the settings name; under torchrun, this process."""
    if together.is_spread() or settings.workers == 0:
        return Here(settings, root)
    return ENGINES[settings.engine](settings, root)
