"""The course of a comparison, from what is asked for to the report: the same from the command line and from Python."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normkit.columns import number_of
from normkit.lab import logs, request, together
from normkit.lab.clock import OF_A_RUN, RACE, RECOGNITION, REPORT, RUNS, START, Clock
from normkit.lab.files import Folder, replace_file, seal
from normkit.lab.plan.settings import another_folder, spell
from normkit.lab.together import is_first
from normkit.safe import say

if TYPE_CHECKING:
    from normkit.lab.plan.plan import Plan

SHOWN = 5  # crashed runs that are named

Results = dict[str, dict[str, Any]]


class Stopped(KeyboardInterrupt):
    """A SIGTERM: what it interrupts can go on, as after Ctrl-C."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Let a SIGTERM stop as Ctrl-C does, where signals can be answered: in the main thread."""
    asked: list[int] = []

    def stop(number: int, frame: Any) -> None:
        asked.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        if asked:  # printed here, since what was interrupted may raise a KeyboardInterrupt of its own
            raise Stopped from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@stoppable()
def compare(options: Any, command: list[str]) -> Results:
    """Train, go on where an earlier call stopped, time, and write the report; return how the runs ended."""
    clock = Clock()
    with clock.part(START):
        plan = request.plan_from(options)
    from normkit.lab.plan import exchanges
    from normkit.lab.report import page as report  # not before what is asked for is known to be possible
    from normkit.lab.training import engines, runs

    with engines.ahead(plan.settings), clock.part(START):
        exchanges.forget()
        OF_A_RUN.read()
        parameters = runs.check(plan)
        plan = runs.with_held_out(plan, saved_plan(options))
    clock.give(START, RECOGNITION, OF_A_RUN.read().get(RECOGNITION, 0.0))
    with together.leaving(), lock_folder(options.out):
        with together.in_turn(plan.settings.device):
            print_additions(plan, options)
            print_folders_left_out(plan)
            print_loss(plan)
            if not options.fresh:
                runs.require_models(plan, Folder(options.out), parameters)
            folder = runs.open_folder(plan, options.out, command, options.fresh and is_first())
        runs.require_space(folder, max(parameters.values(), default=0), plan.settings.workers)
        results = runs.read_results(folder, plan, options.retry)
        before = len(results)
        with clock.part(RUNS), closing(engines.make(plan.settings, options.out)) as engine:
            train(plan, folder, results, engine)
        with clock.part(RACE):
            time_steps(plan, folder)
        if is_first():
            with clock.part(REPORT):
                report.write(folder.root)
            if len(results) > before:
                keep_times(folder, clock.read(), plan.settings.workers)
                report.write(folder.root)  # with the time that it took
    return results


def keep_times(folder: Any, parts: Mapping[str, float], workers: int) -> None:
    """Add to a comparison's file where the time of this call went."""
    from normkit.lab.report import times

    calls = [*times.calls(folder.root), {"parts": parts, "workers": max(1, workers)}]
    replace_file(folder.times, seal({"calls": calls}))


def saved_plan(options: Any) -> Mapping[str, Any] | None:
    """Return the plan that is gone on with, None where there is none."""
    from normkit.lab.plan.plan import plan_in

    return None if options.fresh else plan_in(Folder(options.out))


def print_additions(plan: Plan, options: Any) -> None:
    """Say what is added to a comparison that is there."""
    from normkit.lab.plan import growth
    from normkit.lab.training import runs

    existing = saved_plan(options)
    if existing is None or not is_first():
        return
    runs.require_comparable(existing, plan, Folder(options.out))
    for line in growth.additions(existing, plan.described()):
        say(line, file=sys.stderr)


def print_folders_left_out(plan: Plan) -> None:
    """Say which folders of images, of a class or a split each, are not read."""
    from normkit.lab.plan import data

    for source in filter(None, (plan.settings.data, plan.settings.val)):
        if is_first() and Path(source).is_dir() and data.kind_of(source) == "images":
            empty, unread = data.folders_left_out(source)
            for name in empty:
                say(f"data {source!r}: folder {name!r} has no images, and is left out", file=sys.stderr)
            if unread:
                how = f"to hold one out, name it with {spell('val')} and the folder beside it with {spell('data')}"
                say(f"data {source!r}: not read: {', '.join(map(repr, unread))}; {how}", file=sys.stderr)


def print_loss(plan: Plan) -> None:
    """Say which loss a user's batches are trained by, which their targets decide."""
    from normkit.lab.plan import tasks

    if not is_first() or plan.settings.train:
        return
    name = tasks.load(plan.settings.of(plan.variants[0])).loss_name
    if name:
        say(f"loss: {name}", file=sys.stderr)


def crashes(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Say how many runs have crashed; nothing if none has."""
    crashed = sorted(name for name, result in results.items() if result["status"] == logs.CRASHED)
    if not crashed:
        return ""
    rest = f" and {len(crashed) - SHOWN} more" if len(crashed) > SHOWN else ""
    return f"{len(crashed)} of {number_of(len(results), 'run')} crashed: {', '.join(crashed[:SHOWN])}{rest}"


def train(plan: Plan, folder: Any, results: Results, engine: Any) -> None:
    """Carry out the schedule, shown on the terminal by the first process."""
    from normkit.lab.screen import Screen
    from normkit.lab.training import runs

    screen = Screen(plan, folder, dict(results))
    if not is_first():
        runs.conduct(plan, folder, engine, results, lambda run, result: None)
        return
    screen.introduce()
    with screen.live():
        runs.conduct(plan, folder, engine, results, screen.note)


def time_steps(plan: Plan, folder: Any) -> None:
    """Time a step of all variants side by side, now that nothing trains; not where processes share a step."""
    from normkit.lab.plan import ladder
    from normkit.lab.report import page as report
    from normkit.lab.training import speed

    if together.is_spread() or plan.settings.train:
        return
    try:
        speed.measure(ladder.top(plan), folder, [row.variant for row in report.summary(folder.root) if row.seeds])
    except RuntimeError as error:  # such as a GPU that is elsewhere, or has no room for two models
        say(f"steps could not be timed: {error}", file=sys.stderr)


def lock_folder(root: str) -> Any:
    """Keep a second comparison out of the folder."""
    from filelock import FileLock, Timeout

    if not is_first():
        return nullcontext()
    try:
        folder = Folder(root)
        folder.root.mkdir(parents=True, exist_ok=True)
        return FileLock(folder.lock, timeout=0).acquire()
    except Timeout:
        raise ValueError(f"another normkit compare is at work in {root}; {another_folder()}") from None
    except NotImplementedError as error:  # of an old filelock, where a cluster's disk has no locks
        raise ValueError(f"{root} is on a disk without locks; {another_folder()}") from error
    except OSError as error:
        where = error.filename or root
        raise ValueError(f"{where} cannot be written: {error.strerror}; {another_folder()}") from error
