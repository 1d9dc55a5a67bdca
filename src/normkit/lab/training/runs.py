"""The schedule: what to run next, given what has ended.

Each variant first gets the same small search of its learning rate, in full runs with a seed of their own (0): the usual
rate and the next above it, then one more beyond the better as long as that is the lowest or the highest, until the
budget of trials is spent. Where weight decays are searched, each variant tries all of them at its best rate, in as many
runs. Then the best of both is trained with every seed, seed by seed, so that a comparison cut short
is still a fair one. Where seeds go on until it is decided, they do so look by look, for the variants that are not.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from normkit.lab import logs
from normkit.lab.files import Folder, Unwritable, replace_file, seal, set_aside
from normkit.lab.plan import findings, growth, ladder, later, measures, tasks
from normkit.lab.plan.optimizers import optimizer_for, usual_rate
from normkit.lab.plan.plan import RUN_FILE, SEARCH_SEED, Plan, Run, clear, environment, plan_in, rung_of, same
from normkit.lab.plan.settings import HANDED, Settings, another_folder, full, spell
from normkit.lab.plan.variants import Variant
from normkit.lab.training import own
from normkit.lab.training.engines import Engine

Results = dict[str, dict[str, Any]]
FACTOR = 3.0  # between neighbouring learning rates of a search
FIRST = 2  # trials that a search begins with; the third is on the side of the better one
SPACE = 64 * 2**20  # bytes that must be free beside the checkpoints
HELD_OUT = "what is held out"  # as a plan names its print
CHECKED = 1  # the seed of the models that are built before training
RETRIES = 2  # how often a run is taken up again whose process was killed


def ready(plan: Plan, results: Mapping[str, Mapping[str, Any]]) -> list[Run]:
    """Return the runs that could start now, in order, those that have ended left out: rung by rung of a ladder."""
    return [run for rung in ladder.plans(plan) for run in _ready(rung, results)]


def _ready(plan: Plan, results: Mapping[str, Mapping[str, Any]]) -> list[Run]:
    trials = [run for variant in plan.variants for run in search(plan, variant, results)]
    best = {variant.name: best_trial(plan, variant, results) for variant in plan.variants}
    seed_counts = seeds_by_variant(plan, best, results)
    finals = [
        final(plan, variant, own.lr, seed, own.decay)
        for seed in range(1, max(seed_counts.values(), default=0) + 1)
        for variant in plan.variants
        if (own := best[variant.name]) is not None and seed <= seed_counts[variant.name]
    ]
    return [run for run in trials + finals if run.name not in results]


def seeds_by_variant(
    plan: Plan, best: Mapping[str, Tuned | None], results: Mapping[str, Mapping[str, Any]]
) -> dict[str, int]:
    """Return how many seeds each variant needs, as far as is known so far; one that has failed needs no more."""
    settings = plan.settings
    if not settings.until_decided:
        return dict.fromkeys(best, settings.seeds)
    values = {v.name: _values(plan, v, best[v.name], results) for v in plan.variants}
    failed = {name for name in best if best[name] is None and not _searching(plan, name, results)}
    failed |= {name for name, scores in values.items() if math.inf in scores.values()}
    sound = {name: scores for name, scores in values.items() if name not in failed}
    twins = {variant.name for variant in plan.variants if variant.start != "own"}
    _, planned = findings.judged(sound, plan.baseline, twins, settings.seeds, until=True, share=settings.margin)
    return {name: planned.get(name, len(values[name])) for name in best}


def _values(
    plan: Plan, variant: Variant, best: Tuned | None, results: Mapping[str, Mapping[str, Any]]
) -> dict[int, float]:
    """Return by seed what the runs of a variant that have ended are judged by; less is better."""
    seeds = range(1, plan.settings.seeds + 1) if best is not None else ()
    lr, decay = best or Tuned(0.0, None)
    scores = {seed: value_of(plan, results.get(final(plan, variant, lr, seed, decay).name)) for seed in seeds}
    return {seed: value for seed, value in scores.items() if value is not None}


def _searching(plan: Plan, name: str, results: Mapping[str, Mapping[str, Any]]) -> bool:
    return any(run.name not in results for run in search(plan, plan.variant(name), results))


class Tuned(NamedTuple):
    """What a variant's full runs are trained with; a decay of None is that of the settings."""

    lr: float
    decay: float | None


def search(plan: Plan, variant: Variant, results: Mapping[str, Mapping[str, Any]]) -> list[Run]:
    """Return the trials of a variant's searches that can be named now, ended ones too: of the rate, then of the decay.

    A twin takes what another has found.
    """
    return [*rate_search(plan, variant, results), *decay_search(plan, variant, results)]


def decay_search(plan: Plan, variant: Variant, results: Mapping[str, Mapping[str, Any]]) -> list[Run]:
    """Return the trials of weight decays at a variant's best rate, none before that is known."""
    decays, rate = plan.settings.decays or (), best_rate(plan, variant, results)
    if len(decays) < 2 or rate is None or sibling(plan, variant) is not None:
        return []
    return [trial(plan, variant, rate, decay) for decay in decays]


def rate_search(plan: Plan, variant: Variant, results: Mapping[str, Mapping[str, Any]]) -> list[Run]:
    """Return the trials of a variant's learning rate that can be named now, ended ones too.

    None for a variant whose rate is given, or that is another's twin and takes its rate.
    """
    settings = plan.settings
    if variant.lr is not None or sibling(plan, variant) is not None:
        return []
    if settings.lrs is not None:
        return [trial(plan, variant, lr) for lr in settings.lrs] if len(settings.lrs) > 1 else []
    if settings.trials <= 1:
        return []
    rates = first_rates(usual_rate(variant.optimizer), settings.trials)
    while len(rates) < settings.trials:
        further = next_rate({lr: value_of(plan, results.get(trial(plan, variant, lr).name)) for lr in rates})
        if further is None:
            break
        rates.append(further)
    return [trial(plan, variant, lr) for lr in rates]


def trial(plan: Plan, variant: Variant, lr: float, decay: float | None = None) -> Run:
    """Return the run that tries a learning rate, or a weight decay at one."""
    steps, seconds = length(plan, variant)
    share = plan.settings.search
    steps = None if steps is None else max(1, round(steps * share))
    seconds = None if seconds is None else seconds * share
    return Run(variant, lr, SEARCH_SEED, "search", steps, seconds, plan.rung, decay)


def final(plan: Plan, variant: Variant, lr: float, seed: int, decay: float | None = None) -> Run:
    """Return a run that counts."""
    return Run(variant, lr, seed, "final", *length(plan, variant), plan.rung, decay)


def length(plan: Plan, variant: Variant) -> tuple[int | None, float | None]:
    """Return the steps or the seconds of a variant's full run."""
    return (variant.steps, None) if variant.steps is not None else (plan.settings.steps, plan.settings.seconds)


def sibling(plan: Plan, variant: Variant) -> Variant | None:
    """Return the variant that a twin has all in common with but its start and its name."""
    own = {**vars(variant), "start": "own"}
    alike = (other for other in plan.variants if {**vars(other), "name": variant.name} == own)
    return next(alike, None) if variant.start != "own" else None


def first_rates(usual: float, trials: int) -> list[float]:
    """Begin with the usual rate and the next above it.

    >>> first_rates(0.003, 5)
    [0.003, 0.009]
    """
    return [round_rate(usual * FACTOR**power) for power in range(min(FIRST, trials))]


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


def value_of(plan: Plan, result: Mapping[str, Any] | None) -> float | None:
    """Return the number that a run is judged by, turned so that less is better.

    Infinity if the run diverged or crashed, None if it has not ended.
    """
    if result is None:
        return None
    final = result.get("final") or {measures.LOSS: result.get("final_loss")}
    return measures.of(vars(plan.settings)).badness(final) if result["status"] == logs.DONE else math.inf


def best_rate(plan: Plan, variant: Variant, results: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the learning rate for a variant's full runs; None while the search lasts, or if all failed."""
    settings, twin = plan.settings, sibling(plan, variant)
    if variant.lr is not None:
        return round_rate(variant.lr)
    if twin is not None:
        return best_rate(plan, twin, results)
    trials = rate_search(plan, variant, results)
    if not trials:
        return round_rate(settings.lrs[0] if settings.lrs else usual_rate(variant.optimizer))
    losses = {run.lr: value_of(plan, results.get(run.name)) for run in trials}
    if None in losses.values():
        return None
    best = min(losses, key=lambda lr: losses[lr])  # type: ignore[arg-type,return-value]
    return best if math.isfinite(losses[best]) else None  # type: ignore[arg-type]


def best_trial(plan: Plan, variant: Variant, results: Mapping[str, Mapping[str, Any]]) -> Tuned | None:
    """Return what a variant's full runs are trained with; None while its searches last, or if all trials failed."""
    twin = sibling(plan, variant)
    if twin is not None:
        return best_trial(plan, twin, results)
    rate, decays = best_rate(plan, variant, results), plan.settings.decays or ()
    if rate is None or not decays:
        return None if rate is None else Tuned(rate, None)
    if len(decays) == 1:
        return Tuned(rate, decays[0])
    losses = {run.decay: value_of(plan, results.get(run.name)) for run in decay_search(plan, variant, results)}
    if None in losses.values():
        return None
    best = min(losses, key=lambda decay: losses[decay])  # type: ignore[arg-type,return-value]
    return Tuned(rate, best) if math.isfinite(losses[best]) else None  # type: ignore[arg-type]


def steps_in_all(plan: Plan, results: Mapping[str, Mapping[str, Any]]) -> float:
    """Return how many full runs' worth of training a comparison is, as far as is known so far: searches may go on.

    A run on a rung is worth as many as the rung says.
    """
    return sum(weight(plan, rung.rung) * _steps_in_all(rung, results) for rung in ladder.plans(plan))


def weight(plan: Plan, rung: float) -> float:
    """Return how many runs of the first rung one is worth."""
    return 1.0 if plan.settings.ladder_of == ladder.DATA else rung


def _steps_in_all(plan: Plan, results: Mapping[str, Mapping[str, Any]]) -> float:
    trials = sum(len(search(plan, variant, results)) for variant in plan.variants)
    best = {variant.name: best_trial(plan, variant, results) for variant in plan.variants}
    return sum(seeds_by_variant(plan, best, results).values()) + trials * plan.settings.search


def read_results(folder: Folder, plan: Plan, retry: bool = False) -> Results:
    """Read from the logs what has ended; interrupted runs have not, and with ``retry`` crashed ones have not either.

    Nor has a run whose log is damaged, or of another comparison.
    """
    again = (logs.INTERRUPTED, logs.CRASHED) if retry else (logs.INTERRUPTED,)
    records = {path.stem: log for path in folder.logs() if (log := logs.read(path)).whole and belongs(plan, log)}
    return {name: log.end for name, log in records.items() if log.end["status"] not in again}


def belongs(plan: Plan, log: logs.Read, unnamed: bool = True) -> bool:
    """Whether a log is of this plan; ``unnamed`` is the answer for one that names none, as older ones."""
    if "recipe" not in log.start:
        return unnamed
    run = run_of(plan, log)
    return run is not None and same(log.start["recipe"], run.recipe(ladder.at(plan.settings, run.rung)))


def run_of(plan: Plan, log: logs.Read) -> Run | None:
    """Return the run that a plan has by the name of a log, or None."""
    start, rung = log.start, rung_of(log.start)
    if rung not in ladder.rungs(vars(plan.settings)):
        return None
    plan = ladder.plan_at(plan, rung)
    variant = next((v for v in plan.variants if v.name == start["variant"]), None)
    if variant is None:
        return None
    search, lr, decay = start["seed"] == SEARCH_SEED, start["lr"], start.get("decay")
    return trial(plan, variant, lr, decay) if search else final(plan, variant, lr, start["seed"], decay)


def open_folder(plan: Plan, root: str | Path, command: list[str], fresh: bool = False) -> Folder:
    """Make the folder of a comparison, or find it again: what is there must be the same, or a part of it.

    A plan that is lost or damaged is written anew, if the runs that have ended say that they are of this one. One that
    has grown takes the place of the other at once; then runs that are shorter than they should be are set aside.
    """
    folder = Folder(root)
    if fresh:
        clear(folder)
    existing = plan_in(folder)
    if existing is None and not any(RUN_FILE.fullmatch(path.name) for path in folder.logs()):
        for path in (folder.report, folder.speed, folder.times):
            if path.exists():
                raise ValueError(f"{path} exists already, and is of no comparison; {another_folder()}")
    folder.create()
    if existing is None:
        require_own(plan, folder)
        if folder.plan.exists():
            set_aside(folder.plan)
        write_plan(folder, {**plan.described(), "command": command, "environment": environment()})
        return folder
    require_comparable(existing, plan, folder)
    here = plan.described()["settings"]
    prints = {name: here[name] for name in ("prints", *HANDED)}  # a folder of before has none, or such of other rules
    if growth.additions(existing, plan.described()):
        before = {"seeds": existing["settings"]["seeds"], "rungs": ladder.rungs(existing["settings"])}
        added = [*existing.get("added", []), {"command": command, **before}]
        write_plan(folder, {**existing, **plan.described(), "added": added})
    elif not prints.items() <= existing["settings"].items():
        write_plan(folder, {**existing, "settings": {**existing["settings"], **prints}})
    set_shorter_aside(plan, folder)
    return folder


def write_plan(folder: Folder, content: Mapping[str, Any]) -> None:
    """Put a plan in the place of what is there, whole."""
    replace_file(folder.plan, seal(content, indent=2))


def require_comparable(saved: Mapping[str, Any], plan: Plan, folder: Folder) -> None:
    """Refuse to add to a comparison what could not be compared with it."""
    if changed := growth.obstacles(saved, plan.described()):
        raise ValueError(f"{folder.plan} is of another comparison ({'; '.join(changed)}); {way_out()}")


def way_out() -> str:
    """Say what helps where a folder holds something else."""
    return f"{another_folder()}, or give {spell('fresh')} to delete what is there"


def set_shorter_aside(plan: Plan, folder: Folder) -> None:
    """Make room for runs that are to be longer than those that are there by their names, checkpoints too."""
    for path in folder.logs():
        log = logs.read(path)
        if "recipe" not in log.start or not (run := run_of(plan, log)):
            continue
        recipe = log.start["recipe"]
        if (recipe.get("steps"), recipe.get("seconds")) != (run.steps, run.seconds):
            folder.forget(run.name)
            set_aside(path, "shorter")


def require_own(plan: Plan, folder: Folder) -> None:
    """Require every run that has ended to say that it is of this plan."""
    for path in folder.logs():
        if (log := logs.read(path)).whole and not belongs(plan, log, unnamed=False):
            state = "damaged" if folder.plan.exists() else "missing"
            raise ValueError(f"{folder.plan} is {state}, and {path} is not known to be of this comparison; {way_out()}")


def require_space(folder: Folder, parameters: int, workers: int) -> None:
    """Require room for the checkpoints of all runs that go on at once: weights and two moments, twice while written."""
    need = SPACE + 2 * 3 * 4 * parameters * max(1, workers)
    free = shutil.disk_usage(folder.root).free
    if free < need:
        raise ValueError(
            f"{folder.root} has {free / 2**20:.0f} MB free; logs and checkpoints need {need / 2**20:.0f} MB"
        )


def require_models(plan: Plan, folder: Folder, parameters: Mapping[tuple[str, float], int]) -> None:
    """Refuse to go on with runs of models that have other parameters by now, though all that names them is the same."""
    changed = []
    for path in filter(Path.is_file, folder.logs()):
        with path.open("rb") as file:
            log = logs.Read([event for line in file.readlines(1) if (event := logs.event_of(line))], 0, False, False)
        was, now = log.start.get("parameters"), parameters.get((log.start.get("variant", ""), rung_of(log.start)))
        if log.start.get("seed") == CHECKED and was and now and was != now and belongs(plan, log):
            changed.append(f"variant {log.start['variant']!r}: {was:,} parameters there, {now:,} here")
    if changed:
        raise ValueError(f"{folder.plan} is of another comparison ({'; '.join(dict.fromkeys(changed))}); {way_out()}")


def with_held_out(plan: Plan, saved: Mapping[str, Any] | None) -> Plan:
    """Return the plan with a print of the held-out data, unless they are others each time they are read.

    It is that of this process: in others, with other threads, the last digits of what a module computes may differ.
    """
    if plan.settings.train:
        return plan
    known = dict(entry.rsplit("#", 1) for entry in full(Settings, saved["settings"])["prints"]) if saved else {}
    print_ = tasks.held_out_print(ladder.top(plan).settings.of(plan.variants[0]), known.get(HELD_OUT, ""))
    prints = (*plan.settings.prints, f"{HELD_OUT}#{print_}")
    return replace(plan, settings=replace(plan.settings, prints=prints))


def check(plan: Plan) -> dict[tuple[str, float], int]:
    """Build every variant and pass one batch through it; return the parameters of each, on each rung of a ladder."""
    if plan.settings.train:
        own.check(plan)
        return {}
    for variant in plan.variants if plan.settings.decays else ():
        if "weight_decay" in optimizer_for(variant.optimizer)[1]:
            both = f"{spell('decay')} and {variant.optimizer!r} both say the weight decay of {variant.name!r}"
            raise ValueError(f"{both}; leave one out")
    later.check(plan.settings)
    rungs = ladder.plans(plan)
    rungs = rungs[:1] if plan.settings.ladder_of == ladder.STEPS else rungs  # longer runs are of the same models
    return {(v.name, rung.rung): tasks.check_variant(v, rung.settings) for rung in rungs for v in rung.variants}


def conduct(
    plan: Plan, folder: Folder, engine: Engine, results: Results, report: Callable[[Run, dict | None], None]
) -> Results:
    """Run everything; ``report`` is called for each run that starts, and with its result for each that ends.

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
                report(run, None)
                engine.start(run)
            if not engine.active:
                return results
            for run, result in engine.wait():
                if result.get("unwritable"):
                    raise Unwritable(*result["unwritable"])
                lost[run.name] += result["status"] == logs.INTERRUPTED
                if lost[run.name] > RETRIES:
                    result = give_up(folder, run, f"{result['error']}, {lost[run.name]} times")
                report(run, result)
                if result["status"] != logs.INTERRUPTED:
                    results[run.name] = result
    finally:
        engine.close()


def give_up(folder: Folder, run: Run, why: str) -> dict[str, Any]:
    """Write the end of a run that could not do so itself."""
    return logs.Log(folder.log(run.name)).end(logs.CRASHED, error=why)
