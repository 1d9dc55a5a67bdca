"""What the terminal shows while runs go on: a bar for each, read from the logs, whichever engine writes them."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from normkit.columns import number_of
from normkit.lab import logs, notebook
from normkit.lab.files import Folder
from normkit.lab.plan import ladder
from normkit.lab.plan.handed import in_words
from normkit.lab.plan.plan import NAME, SEARCH_SEED, Plan, Run
from normkit.lab.plan.settings import Settings
from normkit.lab.training import runs
from normkit.safe import safe
from normkit.watching.finding import list_names

PAINTS = {logs.DONE: "green", logs.DIVERGED: "red", logs.CRASHED: "red", logs.INTERRUPTED: "yellow"}


class Screen:
    """Follows a comparison; on a terminal it is drawn over and over, elsewhere each run that ends gives a line."""

    def __init__(self, plan: Plan, folder: Folder, results: runs.Results):
        from rich.console import Console

        self.plan, self.folder = plan, folder
        self.console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        self.active: dict[str, tuple[Run, logs.Tail, dict[str, Any]]] = {}
        self.results = results
        self.began, self.before = time.monotonic(), self._progress()

    def introduce(self) -> None:
        """Say what is going to be trained, and with which budget."""
        plan, settings = self.plan, self.plan.settings
        unit = "round" if settings.federated else "step"
        length = f"{number_of(settings.steps, unit)} a run, " if settings.steps else ""
        length = f"{settings.seconds:g} s a run, " if settings.seconds else length
        if settings.ladder:
            rungs = [ladder.name_rung(vars(settings), rung) for rung in settings.ladder]
            length += f"a ladder of {list_names(rungs)}, "
        length = f"{among(settings)}, {length}" if settings.federated else length
        what = f"of {in_words(settings.model)} on {in_words(settings.data)}"
        if settings.train:
            what = f"trained by {in_words(settings.train)}"
        sentence = (
            f"{number_of(len(plan.variants), 'variant')} {what}: {length}"
            f"{search_budget(settings)}, {number_of(settings.seeds, 'seed')}; "
            f"{side_by_side(settings)} on {settings.device}"
        )
        self.console.print(safe(sentence, "terminal"), soft_wrap=True)
        if self.results:
            self.console.print(f"{number_of(len(self.results), 'run')} had ended before; going on with the others")

    @contextmanager
    def live(self) -> Iterator[Screen]:
        """Draw until left."""
        with self._picture():
            yield self

    def _picture(self) -> AbstractContextManager[Any]:
        """Return what draws on a terminal and below a notebook's cell, and nothing elsewhere."""
        from rich.live import Live

        if self.console.is_jupyter:
            return notebook.animate(self.picture)
        if not self.console.is_terminal:
            return nullcontext()
        return Live(get_renderable=self.picture, console=self.console, refresh_per_second=4, transient=True)

    def note(self, run: Run, result: dict[str, Any] | None) -> None:
        """Take note of a run that starts, or of the result of one that ends."""
        if result is None:
            self.active[run.name] = (run, logs.Tail(self.folder.log(run.name)), {})
            return
        self.active.pop(run.name, None)
        if result["status"] != logs.INTERRUPTED:
            self.results[run.name] = result
        for line in logs.read(self.folder.log(run.name)).of(logs.NOTE):
            self.console.print(safe(line["text"], "terminal"), soft_wrap=True)
        self.console.print(describe_end(run, result), soft_wrap=True)

    def picture(self) -> Any:
        """Return the picture of this moment."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for run, event in [self._read(name) for name in list(self.active)]:
            share = share_of(run, event)
            loss = f"loss {event['loss']:.4f}" if event.get("loss") is not None else "starting"
            speed = event["tokens"] / event["seconds"] if event.get("seconds") else 0
            bar = ProgressBar(total=1.0, completed=share, width=28)
            rate = f"{speed:,.0f} {event['unit']}/s" if speed else ""
            table.add_row(*map(Text, title_of(run)), bar, f"{share:4.0%}", loss, rate)
        return Group(table, Text(self._summary(), style="dim"))

    def _read(self, name: str) -> tuple[Run, dict[str, Any]]:
        """Return the newest step of a run, reading only what was added to its log."""
        run, tail, event = self.active[name]
        steps = [e for e in tail.added() if e["event"] == logs.STEP]
        if steps and name in self.active:
            self.active[name] = (run, tail, steps[-1])
        return run, steps[-1] if steps else event

    def _progress(self) -> float:
        """How many full runs' worth of training is done."""
        return sum(self._worth(name) for name in self.results)

    def _worth(self, name: str) -> float:
        known = NAME.fullmatch(name)
        rung = runs.weight(self.plan, float(known["rung"] or 1)) if known else 1.0
        return rung * (self.plan.settings.search if name.endswith(f"--seed{SEARCH_SEED}") else 1.0)

    def _summary(self) -> str:
        going = sum(share_of(run, e) * self._worth(run.name) for run, _, e in list(self.active.values()))
        done, whole = self._progress() + going, runs.steps_in_all(self.plan, self.results)
        spent = time.monotonic() - self.began
        new = done - self.before
        left = clock(spent / new * max(0.0, whole - done)) if new > 0.02 * whole else "?"
        return f"{done / whole:4.0%} of all, {clock(spent)} spent, about {left} left"


def among(settings: Settings) -> str:
    """Say how the data are divided among their owners.

    >>> among(Settings(federated=True))
    '8 clients (dirichlet:0.3) of 5 steps a round'
    """
    clients, steps = number_of(settings.clients, "client"), number_of(settings.local_steps, "step")
    return f"{clients} ({settings.split}) of {steps} a round"


def side_by_side(settings: Settings) -> str:
    """Say how many runs go on at once."""
    alone = settings.engine == "here" or settings.workers < 2
    return "one after the other" if alone else f"{settings.workers} side by side"


def search_budget(settings: Settings) -> str:
    """Say which budget each variant has for the search of its learning rate."""
    least = len(settings.lrs) if settings.lrs is not None else min(runs.FIRST + 1, settings.trials)
    most = least if settings.lrs is not None else settings.trials
    decays = len(settings.decays or ())
    decaying = f"{decays} weight decays at the best rate" if decays > 1 else ""
    if most <= 1:
        return decaying or "no search"
    trials = f"{least}" if most == least else f"{least} to {most}"
    length = "" if settings.search == 1 else f" for {settings.search:.0%} of that"
    return f"{trials} learning rates tried{length}" + (f", and {decaying}" if decaying else "")


def share_of(run: Run, event: dict[str, Any]) -> float:
    """How much of a run its newest line says is done."""
    if not event:
        return 0.0
    return min(1.0, event["step"] / run.steps if run.steps else event["seconds"] / (run.seconds or math.inf))


def title_of(run: Run) -> tuple[str, str]:
    """Name a run in words."""
    rate = f"lr {run.lr:g}, " if run.lr else ""
    rate += "" if run.decay is None else f"decay {run.decay:g}, "
    rate += f"x{run.rung:g}, " if run.rung != 1 else ""
    return safe(run.variant.name, "terminal"), rate + ("search" if run.phase == "search" else f"seed {run.seed}")


def describe_end(run: Run, result: dict[str, Any]) -> Any:
    """Tell in a line how a run ended, as a text of rich."""
    from rich.text import Text

    name, which = title_of(run)
    status = result["status"]
    more = str(result.get("error") or "")
    if status == logs.DONE:
        loss = "" if result["final_loss"] is None else f"loss {result['final_loss']:.4f}  "
        more = loss + "{tokens_per_second:,.0f} {unit}/s  {seconds:.1f} s".format(**result)
    if status == logs.INTERRUPTED:
        more += "; the run goes on from its checkpoint"
    return Text.assemble(f"{name:24} {which:20} ", (status, PAINTS[status]), f" {safe(more, 'terminal')}")


def clock(seconds: float) -> str:
    """Write a duration.

    >>> clock(75)
    '1:15'
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
