"""A comparison as its logs tell it: ``plan.json`` and ``runs/*.jsonl``, whole or not.

A killed run has no end and may have a torn last line; what can be read is kept, and a note says what could not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from normkit.columns import number_of
from normkit.lab import logs
from normkit.lab.files import Folder
from normkit.lab.plan import ladder
from normkit.lab.plan.handed import differ
from normkit.lab.plan.measures import LOSS
from normkit.lab.plan.plan import read as read_plan
from normkit.lab.plan.plan import read_name, rung_of

UNFINISHED = "unfinished"
DAMAGED = "is damaged: it is not what was written, and does not count; the same command trains the run again"


@dataclass(frozen=True)
class Record:
    """One training run, as its log tells it.

    steps, evals, probes: what was logged, one mapping a logged step, in order of the steps.
    end: the last line of a run that came to an end, else empty.
    layers: of how many layers of the model a slot of the variant was, in words.
    found: what the watch found wrong, None of a run that has not ended or that no watch looked at.
    rung: of the ladder that it stands on.
    held_out: a print of the data that were held out.
    loss: which loss a user's batches were trained by.
    """

    name: str
    variant: str
    lr: float
    seed: int
    phase: str
    parameters: int | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    evals: list[dict[str, Any]] = field(default_factory=list)
    probes: list[dict[str, Any]] = field(default_factory=list)
    end: Mapping[str, Any] = field(default_factory=dict)
    layers: Mapping[str, str] = field(default_factory=dict)
    found: list[dict[str, Any]] | None = None
    rung: float = 1.0
    decay: float | None = None
    held_out: str = ""
    loss: str = ""

    @property
    def status(self) -> str:
        """Tell how the run ended: done, diverged, crashed, or unfinished where it can be resumed."""
        status = self.end.get("status", UNFINISHED)
        return UNFINISHED if status == logs.INTERRUPTED else status

    @property
    def curve(self) -> list[tuple[int, float]]:
        """Return (step, held-out loss), or where nothing was held out (step, training loss)."""
        return points(self.evals) or points(self.steps)

    @property
    def last_step(self) -> int | None:
        """Return the last logged step."""
        return max((entry["step"] for entry in [*self.steps, *self.evals]), default=None)

    def final(self, which: str = "final_loss") -> float:
        """Return the final loss, or another number of the run's end; NaN where there is none."""
        return number(self.end.get(which))

    def measured(self, key: str) -> float:
        """Return the last held-out value of a measure; NaN where there is none."""
        if key == LOSS and "final_loss" in self.end:
            return self.final()
        own = self.end.get("final") or {}  # what a training loop of the user's own has returned stands nowhere else
        return number(self.evals[-1].get(key, own.get(key)) if self.evals else own.get(key))


@dataclass(frozen=True)
class Comparison:
    """The plan, the runs that have begun, and notes on what could not be read.

    Of a ladder, the comparison at its highest rung. rungs: those at each, from the lowest; whole: all runs, under the
    plan as it was written.
    """

    folder: Path
    plan: Mapping[str, Any]
    runs: list[Record]
    notes: list[str]
    rung: float = 1.0
    rungs: Mapping[float, Comparison] = field(default_factory=dict)
    whole: Comparison | None = None

    @property
    def entire(self) -> Comparison:
        """Return the comparison with the runs of all rungs."""
        return self.whole or self

    @property
    def baseline(self) -> str:
        """Return the name of the variant that the others are compared with."""
        return self.plan["baseline"]

    @property
    def variants(self) -> list[str]:
        """Return the names of the variants in the plan's order."""
        return [variant["name"] for variant in self.plan["variants"]]

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return what all variants have in common."""
        return self.plan.get("settings", {})

    @property
    def seeds(self) -> int:
        """Return how many seeds are planned."""
        planned = self.settings.get("seeds", 0)
        return planned if isinstance(planned, int) else len(planned)

    @property
    def twins(self) -> list[str]:
        """Return the variants that are the control: another from a permuted start."""
        return [variant["name"] for variant in self.plan["variants"] if variant.get("start", "own") != "own"]

    @property
    def held_out(self) -> bool:
        """Tell whether the losses are of data that was not trained on."""
        return any(run.evals for run in self.runs)

    def final_runs(self, variant: str) -> list[Record]:
        """Return the runs of a variant that count, by seed; those of the learning-rate search do not."""
        return sorted(self._of(variant, "final"), key=lambda run: run.seed)

    def search_runs(self, variant: str) -> list[Record]:
        """Return the runs of a variant's learning-rate search, by rate."""
        return sorted((run for run in self._of(variant, "search") if run.decay is None), key=lambda run: run.lr)

    def _of(self, variant: str, phase: str) -> list[Record]:
        return [run for run in self.runs if run.variant == variant and run.phase == phase]


def load(folder: str | Path) -> Comparison:
    """Read a comparison's folder; a folder without a plan is a ValueError, everything else that is amiss a note."""
    files = Folder(folder)
    if not files.plan.is_file():
        raise ValueError(f"{folder}: there is no plan.json; wanted a folder that 'normkit compare' has written")
    plan = read_plan(files.plan)
    notes: list[str] = []
    known = {variant["name"] for variant in plan["variants"]}
    runs = [run for path in files.logs() if (run := _run(path, plan, notes)) is not None]
    strangers = sorted({run.variant for run in runs} - known)
    notes += [f"the plan has no variant {name!r}; its runs are left out" for name in strangers]
    notes += [
        f"{name}: the held-out data were not the same in all of its runs"
        for name in sorted(known)
        if any(itertools.starmap(differ, itertools.pairwise(run.held_out for run in runs if run.variant == name)))
    ]
    whole = Comparison(files.root, plan, [run for run in runs if run.variant in known], notes)
    return top_of_ladder(whole) if whole.settings.get("ladder") else whole


def top_of_ladder(whole: Comparison) -> Comparison:
    """Return the comparison at the highest rung of a ladder, which knows those at the others."""
    settings = whole.settings
    rungs = {rung: at_rung(whole, {**settings, **ladder.changes(settings, rung)}, rung) for rung in settings["ladder"]}
    return replace(rungs[max(rungs)], rungs=rungs, whole=whole)


def at_rung(whole: Comparison, settings: Mapping[str, Any], rung: float) -> Comparison:
    """Return what belongs to a rung."""
    runs = [run for run in whole.runs if run.rung == rung]
    return Comparison(whole.folder, {**whole.plan, "settings": settings}, runs, whole.notes, rung)


def points(entries: Iterable[Mapping[str, Any]], key: str = "loss") -> list[tuple[int, float]]:
    """Return (step, value) of the entries whose value is a finite number."""
    return [(entry["step"], value) for entry in entries if math.isfinite(value := number(entry.get(key)))]


def number(value: Any) -> float:
    """Return a number as a float, and NaN for anything else.

    >>> number(2), number(None)
    (2.0, nan)
    """
    return float(value) if isinstance(value, int | float) else math.nan


def _run(path: Path, plan: Mapping[str, Any], notes: list[str]) -> Record | None:
    log = logs.read(path)
    variants = [variant["name"] for variant in plan["variants"]]
    if _shorter(log, plan):
        notes.append(f"{path.name} is of a shorter run than is planned by now; the same command trains the longer one")
        return None
    if log.broken:
        notes.append(f"{path.name}: {number_of(log.broken, 'line')} could not be read")
    notes += [f"{path.name}: {note['text']}" for note in log.of(logs.NOTE)]
    start = log.start or (read_name(path.stem, variants) if log.events else {})
    if not start:
        notes.append(f"{path.name}: the run has not begun")
        return None
    if log.damaged:
        notes.append(f"{path.name} {DAMAGED}")
    facts = start["variant"], number(start["lr"]), start["seed"], start.get("phase", "final"), start.get("parameters")
    steps, evals, probes = (_by_step(log.of(kind)) for kind in (logs.STEP, logs.EVAL, logs.PROBE))
    findings = [event["findings"] for event in log.of(logs.FOUND)][-1:]
    end = log.end if log.whole else {}
    finding = findings[0] if findings else None
    layers, decay = start.get("layers", {}), start.get("decay")
    return Record(
        path.stem,
        *facts,
        steps,
        evals,
        probes,
        end,
        layers,
        finding,
        rung_of(start),
        decay,
        str(start.get("held_out") or ""),
        start.get("loss", ""),
    )


def _shorter(log: logs.Read, plan: Mapping[str, Any]) -> bool:
    """Whether a run is of the time before all runs were to be longer."""
    spec, settings = log.start.get("recipe"), plan.get("settings", {})
    own = next((v.get("steps") for v in plan["variants"] if v["name"] == log.start.get("variant")), None)
    if (rung := rung_of(log.start)) in ladder.rungs(settings):
        settings = {**settings, **ladder.changes(settings, rung)}
    if not isinstance(spec, Mapping) or own is not None:
        return False
    share = settings.get("search", 1.0) if spec.get("phase") == "search" else 1.0
    planned = {key: share * value for key in ("steps", "seconds") if (value := settings.get(key)) is not None}
    planned |= {"steps": math.floor(planned["steps"])} if "steps" in planned else {}
    return any(isinstance(spec.get(key), int | float) and spec[key] < value for key, value in planned.items())


def _by_step(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries in order; of a step that was logged again after a resume, the later."""
    entries = {event["step"]: event for event in events}
    return [entries[step] for step in sorted(entries)]
