"""What a training step of each variant takes, timed side by side with the baseline's once all runs have ended.

Steps of the baseline and of a few variants are taken in turn, in an order that turns too, so that what else the machine
does hits all alike. The ratio of each round's times is what counts; its median has an interval from the ratios' order
alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from normkit.lab.files import Folder, replace_file, seal, unseal
from normkit.lab.plan.plan import Plan
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant

ROUNDS, FEWEST = 40, 10  # of a race; fewer than the first if they take longer than SECONDS a variant
SECONDS = 2.0
WARM_UP = 2
AT_ONCE = 3  # variants beside the baseline; on a GPU, which must hold them all, one
LEVEL = 0.05
CPU, WALL = "CPU time", "time"  # what is compared: on a CPU what its cores work, which others' work does not lengthen


class Ratio(NamedTuple):
    """A variant's time for a sample over the baseline's: the median over rounds, and its interval."""

    median: float
    low: float
    high: float
    rounds: int
    clock: str


def measure(plan: Plan, folder: Folder, names: Sequence[str]) -> None:
    """Race those variants against the baseline that have not been raced, and keep the rounds' times."""
    rounds = read_rounds(folder.root, plan.baseline, plan.rung)
    missing = [name for name in names if name != plan.baseline and name not in rounds]
    if not missing or plan.baseline not in names:
        return
    torch.set_num_threads(plan.settings.threads)
    on_gpu = plan.settings.device == "cuda"
    at_once = 1 if on_gpu else AT_ONCE
    for at in range(0, len(missing), at_once):
        some = missing[at : at + at_once]
        steps = [stepper(plan.variant(name), plan.settings) for name in (plan.baseline, *some)]
        rounds |= zip(some, race(*steps), strict=True)
    content: dict[str, Any] = {"clock": WALL if on_gpu else CPU, "baseline": plan.baseline, "rounds": rounds}
    content |= {} if plan.rung == 1 else {"rung": plan.rung}
    replace_file(folder.speed, seal(content))


def stepper(variant: Variant, settings: Settings) -> Callable[[], tuple[float, float]]:
    """Return a function that takes a training step, and returns its CPU and wall time for a sample."""
    from normkit.lab.plan import optimizers, tasks
    from normkit.weight import project, spheres

    task = tasks.load(settings.of(variant))
    device = torch.device(settings.device)
    model = task.build(variant, 1).to(device)
    optimizer = optimizers.make_optimizer(variant.optimizer, model, 1e-6, settings.weight_decay)
    batch = _to_device(task.data.train(1, 1), device)
    if spheres(model):
        project(model, optimizer)
    size, load, kind = task.size(batch), task.objective(variant), _autocast(settings)

    def step() -> tuple[float, float]:
        began, worked = time.perf_counter(), time.process_time()
        with torch.autocast(device.type, kind, enabled=kind is not None):
            loss = load(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip or math.inf)
        optimizer.step()
        optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return (time.process_time() - worked) / size, (time.perf_counter() - began) / size

    return step


def _autocast(settings: Settings) -> torch.dtype | None:
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(settings.precision)


def _to_device(batch: Any, device: torch.device) -> Any:
    from accelerate.utils import send_to_device

    return send_to_device(batch, device)


def race(*steps: Callable[[], tuple[float, float]]) -> list[list[list[float]]]:
    """Take steps of all in turn; return for each but the first, by round, the first's two times and its own."""
    for _ in range(WARM_UP):
        for step in steps:
            step()
    rounds: list[list[tuple[float, float]]] = []
    places = list(range(len(steps)))
    began, limit = time.perf_counter(), SECONDS * (len(steps) - 1)
    while len(rounds) < FEWEST or (len(rounds) < ROUNDS and time.perf_counter() - began < limit):
        turn = len(rounds)
        times = {place: steps[place]() for place in places[:: -1 if turn % 2 else 1]}
        rounds.append([times[place] for place in range(len(steps))])
        if turn % 2:
            places.append(places.pop(0))
    return [
        [[*first, *own] for first, own in ((row[0], row[place]) for row in rounds)] for place in range(1, len(steps))
    ]


def read_rounds(root: str | Path, baseline: str, rung: float = 1.0) -> dict[str, list[list[float]]]:
    """Return the rounds of every variant raced so far against the baseline; of a file that cannot be read, none."""
    content = _content(root)
    of = (content.get("baseline", baseline), content.get("rung", 1.0))
    return dict(content.get("rounds", {})) if of == (baseline, rung) else {}


def ratios(root: str | Path, baseline: str, rung: float = 1.0) -> dict[str, Ratio]:
    """Return what each variant's step takes of the baseline's, as the file in a comparison's folder has it.

    With several variants, each interval is wider, so that all hold together at 1 - :data:`LEVEL`.
    """
    content = _content(root)
    clock = content.get("clock", CPU)
    at = 0 if clock == CPU else 1
    rounds: Mapping[str, Any] = read_rounds(root, baseline, rung)
    return {
        name: _ratio([row[2 + at] / row[at] for row in rows if row[at] > 0], LEVEL / len(rounds), clock)
        for name, rows in rounds.items()
    }


def _ratio(ratios: Sequence[float], level: float, clock: str) -> Ratio:
    import numpy as np

    low, high = interval_of_median(ratios, level)
    return Ratio(float(np.median(ratios)) if ratios else math.nan, low, high, len(ratios), clock)


def interval_of_median(ratios: Sequence[float], level: float) -> tuple[float, float]:
    """Return the values between which the median lies, by the sign test; any value where there are too few.

    >>> interval_of_median(range(1, 11), 0.05), interval_of_median([1, 2], 0.05)
    ((2, 9), (-inf, inf))
    """
    ordered, chance, cut = sorted(ratios), 0.0, 0
    while cut <= len(ordered) // 2:
        chance += math.comb(len(ordered), cut) / 2 ** len(ordered)
        if chance > level / 2:
            break
        cut += 1
    return (ordered[cut - 1], ordered[-cut]) if cut else (-math.inf, math.inf)


def _content(root: str | Path) -> dict[str, Any]:
    try:
        content = unseal(Folder(root).speed.read_bytes())
        rows = [row for rows in content["rounds"].values() for row in rows]
        return content if all(len(row) == 4 and min(map(float, row)) >= 0 for row in rows) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
