"""The schedule: what to run next, given what has ended.

Each variant first gets the same small search of its learning rate, in full runs with a seed of their own (0): three
rates around the usual one, then one more beyond the best as long as that is the lowest or the highest, until the budget
of trials is spent. Then the best rate is trained with every seed, seed by seed, so that a comparison cut short is still
a fair one.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from normkit.lab import logs, tasks
from normkit.lab.engines import Engine
from normkit.lab.files import Damaged, Folder, Unwritable, replace_file, set_aside
from normkit.lab.plan import SEARCH_SEED, Plan, Run, Variant, differences, environment, same
from normkit.lab.plan import read as read_plan

Results = dict[str, dict[str, Any]]
FACTOR = 3.0  # between neighbouring learning rates of a search
FIRST = 3  # trials that a search begins with
SPACE = 64 * 2**20  # bytes that must be free beside the checkpoints
RETRIES = 2  # how often a run is taken up again whose process was killed
WAY_OUT = "name another folder with --out, or give --fresh to delete what is there"


def ready(plan: Plan, results: Mapping[str, Mapping[str, Any]]) -> list[Run]:
    """Return the runs that could start now, in order, those that have ended left out."""
    trials = [run for variant in plan.variants for run in search(plan, variant, results)]
    rates = {variant.name: best_rate(plan, variant, results) for variant in plan.variants}
    finals = [
        final(plan, variant, rate, seed)
        for seed in range(1, plan.settings.seeds + 1)
        for variant in plan.variants
        if (rate := rates[variant.name]) is not None
    ]
    return [run for run in trials + finals if run.name not in results]


def search(plan: Plan, variant: Variant, results: Mapping[str, Mapping[str, Any]]) -> list[Run]:
    """Return the trials of a variant's search that can be named now, ended ones too."""
    settings = plan.settings
    if settings.lrs is not None:
        return [trial(plan, variant, lr) for lr in settings.lrs] if len(settings.lrs) > 1 else []
    if settings.trials <= 1:
        return []
    rates = first_rates(tasks.usual_rate(variant.optimizer), settings.trials)
    while len(rates) < settings.trials:
        further = next_rate({lr: loss_of(results.get(trial(plan, variant, lr).name)) for lr in rates})
        if further is None:
            break
        rates.append(further)
    return [trial(plan, variant, lr) for lr in rates]


def trial(plan: Plan, variant: Variant, lr: float) -> Run:
    """Return the run that tries a learning rate."""
    settings = plan.settings
    steps = None if settings.steps is None else max(1, round(settings.steps * settings.search))
    seconds = None if settings.seconds is None else settings.seconds * settings.search
    return Run(variant, lr, SEARCH_SEED, "search", steps, seconds)


def final(plan: Plan, variant: Variant, lr: float, seed: int) -> Run:
    """Return a run that counts."""
    return Run(variant, lr, seed, "final", plan.settings.steps, plan.settings.seconds)


def first_rates(usual: float, trials: int) -> list[float]:
    """Begin with the usual rate and its neighbours.

    >>> first_rates(0.003, 5)
    [0.001, 0.003, 0.009]
    """
    return sorted(round_rate(usual * FACTOR**power) for power in (0, 1, -1)[: min(FIRST, trials)])


def next_rate(losses: Mapping[float, float | None]) -> float | None:
    """Return the rate beyond the best one if that is at an end; None if it is not, or a trial has not ended (None).

    Where all have failed, a lower rate is tried.

    >>> next_rate({0.001: 3.0, 0.003: 2.5, 0.009: 2.4})
    0.027
    """
    known = {lr: loss for lr, loss in sorted(losses.items()) if loss is not None}
    if len(known) < len(losses):
        return None
    rates, best = list(known), min(known, key=lambda lr: known[lr])
    if best == rates[0]:
        return round_rate(best / FACTOR)
    return round_rate(best * FACTOR) if best == rates[-1] else None


def round_rate(lr: float) -> float:
    """Round to what a file's name shows."""
    return float(f"{lr:.6g}")


def loss_of(result: Mapping[str, Any] | None) -> float | None:
    """Return the final loss of a run, infinity if it diverged or crashed, None if it has not ended."""
    if result is None:
        return None
    loss = result.get("final_loss")
    return loss if result["status"] == logs.DONE and loss is not None and math.isfinite(loss) else math.inf


def best_rate(plan: Plan, variant: Variant, results: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the learning rate for a variant's full runs; None while the search lasts, or if all failed."""
    settings = plan.settings
    trials = search(plan, variant, results)
    if not trials:
        return round_rate(settings.lrs[0] if settings.lrs else tasks.usual_rate(variant.optimizer))
    losses = {run.lr: loss_of(results.get(run.name)) for run in trials}
    if None in losses.values():
        return None
    best = min(losses, key=lambda lr: losses[lr])  # type: ignore[arg-type,return-value]
    return best if math.isfinite(losses[best]) else None  # type: ignore[arg-type]


def steps_in_all(plan: Plan, results: Mapping[str, Mapping[str, Any]]) -> float:
    """Return how many full runs' worth of training a comparison is, as far as can be told now: searches may go on."""
    trials = sum(len(search(plan, variant, results)) for variant in plan.variants)
    return len(plan.variants) * plan.settings.seeds + trials * plan.settings.search


def ended(folder: Folder, plan: Plan, retry: bool = False) -> Results:
    """Read from the logs what has ended; interrupted runs have not, and with ``retry`` crashed ones have not either.

    Nor has a run whose log is damaged, or of another comparison.
    """
    again = (logs.INTERRUPTED, logs.CRASHED) if retry else (logs.INTERRUPTED,)
    found = {path.stem: log for path in folder.logs() if (log := logs.read(path)).whole and belongs(plan, log)}
    return {name: log.end for name, log in found.items() if log.end["status"] not in again}


def belongs(plan: Plan, log: logs.Read, unsaid: bool = True) -> bool:
    """Whether a log is of this plan; ``unsaid`` is the answer for one that does not tell, as those of before."""
    start = log.start
    if "recipe" not in start:
        return unsaid
    variant = next((v for v in plan.variants if v.name == start["variant"]), None)
    if variant is None:
        return False
    search = start["seed"] == SEARCH_SEED
    run = trial(plan, variant, start["lr"]) if search else final(plan, variant, start["lr"], start["seed"])
    return same(start["recipe"], run.recipe(plan.settings))


def open_folder(plan: Plan, root: str | Path, command: list[str], fresh: bool = False) -> Folder:
    """Make the folder of a comparison, or find it again: what is there must be the same comparison.

    A plan that is lost or damaged is written anew, if the runs that have ended say that they are of this one.
    """
    folder = Folder(root)
    if fresh:
        folder.clear()
    folder.create()
    there = plan_there(folder)
    if there is None:
        require_own(plan, folder)
        if folder.plan.exists():
            set_aside(folder.plan)
        content = {**plan.described(), "command": command, "environment": environment()}
        replace_file(folder.plan, json.dumps(content, indent=2) + "\n")
    elif changed := differences(there, plan.described()):
        raise ValueError(f"{folder.plan} is of another comparison ({'; '.join(changed)}); {WAY_OUT}")
    return folder


def plan_there(folder: Folder) -> dict[str, Any] | None:
    """Return the plan that a folder holds, None where it is lost or damaged."""
    try:
        return read_plan(folder.plan) if folder.plan.is_file() else None
    except Damaged:
        return None


def require_own(plan: Plan, folder: Folder) -> None:
    """Require every run that has ended to say that it is of this plan."""
    for path in folder.logs():
        if (log := logs.read(path)).whole and not belongs(plan, log, unsaid=False):
            state = "damaged" if folder.plan.exists() else "missing"
            raise ValueError(f"{folder.plan} is {state}, and {path} is not known to be of this comparison; {WAY_OUT}")


def require_space(folder: Folder, parameters: int, workers: int) -> None:
    """Require room for the checkpoints of all runs that go on at once: weights and two moments, twice while written."""
    need = SPACE + 2 * 3 * 4 * parameters * max(1, workers)
    free = shutil.disk_usage(folder.root).free
    if free < need:
        raise ValueError(
            f"{folder.root} has {free / 2**20:.0f} MB free; logs and checkpoints need {need / 2**20:.0f} MB"
        )


def check(plan: Plan) -> int:
    """Build every variant and pass one batch through it; return the parameters of the largest."""
    task = tasks.load(plan.settings)
    return max(tasks.check_variant(task, variant, plan.settings) for variant in plan.variants)


def conduct(
    plan: Plan, folder: Folder, engine: Engine, results: Results, seen: Callable[[Run, dict | None], None]
) -> Results:
    """Run everything; ``seen`` is told of each run that starts, and with its result of each that ends.

    A run whose process was killed goes on from its checkpoint, up to :data:`RETRIES` times; then it has crashed. Where
    the folder cannot be written, all runs stop.
    """
    for name in results:
        folder.forget(name)
    lost: Counter[str] = Counter()
    try:
        while True:
            running = {run.name for run in engine.active.values()}
            for run in [r for r in ready(plan, results) if r.name not in running][: engine.free]:
                seen(run, None)
                engine.start(run)
            if not engine.active:
                return results
            for run, result in engine.wait():
                if result.get("unwritable"):
                    raise Unwritable(*result["unwritable"])
                lost[run.name] += result["status"] == logs.INTERRUPTED
                if lost[run.name] > RETRIES:
                    result = give_up(folder, run, f"{result['error']}, {lost[run.name]} times")
                seen(run, result)
                if result["status"] != logs.INTERRUPTED:
                    results[run.name] = result
    finally:
        engine.close()


def give_up(folder: Folder, run: Run, why: str) -> dict[str, Any]:
    """Write the end of a run that could not do so itself."""
    return logs.Log(folder.log(run.name)).end(logs.CRASHED, error=why)
