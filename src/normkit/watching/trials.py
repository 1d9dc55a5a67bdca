"""Remedies tried on a copy of the model before they are printed: the last batch, with the line and without."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from normkit.parameters import computed_weights, hooks_on
from normkit.surgery.recognition.specimen import quiet
from normkit.watching.batch import Batch
from normkit.watching.diagnosis import RULES, Diagnosis, beside
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import LOSS, History
from normkit.watching.hook import Hook

if TYPE_CHECKING:
    from normkit.watching.watching import Watch

LARGEST = 2**28  # bytes of a model and its optimizer's state that are copied
SECONDS = 2.0  # of all trials of a diagnosis: no further one is begun then, nor any where a single step takes as long
SIGNALS = ("activations", "attention", "gradients", "updates")
SAME = 0.01  # by which a number may change and counts as the same
OWN = ("torch.", "normkit.")  # whose hooks have no effect outside of the model


class Trial(NamedTuple):
    """What the remedies of a rule are judged by: a number of a watched step on a copy of the model.

    what: the number in words. read: takes it of the copy's history. ill: grows with how bad it is. write: writes it.
    steps: of the optimizer, before it is read. shows: whether a number shows the sign; where the copy does not show it
    there is nothing to try. against: what is added where a line does not help.
    """

    what: Callable[[History, Finding], str]
    read: Callable[[History, Finding], float]
    ill: Callable[[float], float] = float
    write: Callable[[float], str] = number
    steps: int = 0
    shows: Callable[[float], bool] = math.isfinite
    against: str = ""


def reading(history: History, place: str, *whats: str) -> float:
    """Return the last reading of a place, or of the last module inside of what a remedy has put there."""
    for what in whats:
        names = [name for name in history.names(what) if name == place or name.startswith(f"{place}.")]
        if names:
            return float(history.series(names[-1], what)[-1])
    return math.nan


def flat_share(most: float) -> Trial:
    """Return the trial of a function that is flat for a larger share of its inputs than ``most``."""
    return Trial(
        what=lambda history, finding: f"the share of {finding.where[0]} that lies where the function is flat",
        read=lambda history, finding: reading(history, finding.where[0], "saturated"),
        write="{:.0%}".format,
        shows=lambda share: share > most,
    )


STEPS = 5  # a single one may help by chance
LOSS_AFTER_STEPS = Trial(
    what=lambda history, finding: (
        f"{STEPS} steps on the last batch take its loss from {number(float(history.series(LOSS, LOSS)[0]))}"
    ),
    read=lambda history, finding: float(history.series(LOSS, LOSS)[-1]),
    steps=STEPS,
)


def try_remedies(diagnosis: Diagnosis, watch: Watch) -> Diagnosis:
    """Return a diagnosis whose remedies say what came out on a copy; a line that fails there is left out.

    The user's model, its optimizer, gradients, hooks and the random state are left as they are.
    """
    batch = watch.batch
    trials = {f.rule: trial for f in diagnosis.findings if (trial := trial_of(f.rule)) is not None and f.remedies}
    if batch is None or not trials or not is_cheap(watch):
        return diagnosis
    bench, end = Bench(watch, batch), time.monotonic() + SECONDS
    findings = [
        bench.finding(finding, trials[finding.rule], end) if finding.rule in trials else finding
        for finding in diagnosis.findings
    ]
    return dataclasses.replace(diagnosis, findings=tuple(findings))


def trial_of(rule: str) -> Trial | None:
    """Return the trial that stands beside a rule as ``TRIAL``, if there is one."""
    find = RULES.get(rule)
    return None if find is None else beside(find, "TRIAL")


def is_cheap(watch: Watch) -> bool:
    """Whether a copy and a step cost little, and have no effect outside: one process, and no hooks of the user's."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return False
    states = [state.values() for optimizer in watch.optimizers for state in optimizer.state.values()]
    tensors = [*watch.model.parameters(), *watch.model.buffers(), *itertools.chain(*states)]
    size = sum(x.numel() * x.element_size() for x in tensors if isinstance(x, torch.Tensor))
    return watch.tries and size <= LARGEST and watch.took < SECONDS and not any(_foreign_hooks(watch.model))


def _foreign_hooks(model: nn.Module) -> Iterator[Any]:
    for module in model.modules():
        for hook in hooks_on(module):
            home = getattr(hook, "__module__", None) or type(hook).__module__
            if not isinstance(hook, Hook) and not home.startswith(OWN):
                yield hook


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside of what compiles or distributes it."""
    while hasattr(model, "_orig_mod") or isinstance(model, DataParallel | DistributedDataParallel):
        model = model._orig_mod if hasattr(model, "_orig_mod") else model.module  # type: ignore[assignment]
    return model


class Bench:
    """Runs lines on copies of a model, each on its own, and remembers what is seen without any."""

    def __init__(self, watch: Watch, batch: Batch):
        self.watch, self.batch = watch, batch
        self.plain: dict[int, History | None] = {}

    def finding(self, finding: Finding, trial: Trial, end: float) -> Finding:
        """Return a finding with what came of its remedies: those that helped first."""
        if trial.steps not in self.plain:
            self.plain[trial.steps] = self.history("", trial.steps) if time.monotonic() < end else None
        history = self.plain[trial.steps]
        before = math.nan if history is None else trial.read(history, finding)
        if history is None or not math.isfinite(before) or not trial.shows(before):
            return finding
        outcomes = [self._outcome(remedy, finding, trial, history, before, end) for remedy in finding.remedies]
        remedies = sorted((pair for pair in outcomes if pair is not None), key=lambda pair: -pair[0])
        return dataclasses.replace(finding, remedies=tuple(remedy for _, remedy in remedies))

    def _outcome(
        self, remedy: Remedy, finding: Finding, trial: Trial, history: History, before: float, end: float
    ) -> tuple[float, Remedy] | None:
        """Return 1 where a remedy helped, -1 where it harmed, else 0, and the remedy; None where nothing is seen."""
        if not remedy.runs or time.monotonic() > end:
            return 0.0, remedy
        changed = self.history(remedy.line, trial.steps)
        after = math.nan if changed is None else trial.read(changed, finding)
        if not math.isfinite(after):
            return None
        gain = trial.ill(before) - trial.ill(after)
        words = f"{trial.what(history, finding)} {_movement(before, after, trial)}"
        words += f"; {trial.against}" if trial.against and gain <= 0 else ""
        return math.copysign(1.0, gain) if gain else 0.0, remedy._replace(tried=words)

    def history(self, line: str, steps: int) -> History | None:
        """Return what is seen of a copy after a line has run on it; None where anything fails."""
        try:
            with quiet(), torch.inference_mode(False):
                model = unwrap(self.watch.model)
                model, optimizers = copy.deepcopy((model, self.watch.optimizers), computed_weights(model))
                scope = _scope(model.train(), optimizers)
                exec(line, scope)
                return self._watch(scope["model"], scope["optimizer"], steps)
        except Exception:
            return None

    def _watch(self, model: nn.Module, optimizer: Any, steps: int) -> History:
        if steps and optimizer is None:
            raise ValueError("no optimizer")
        watch = type(self.watch)(model, optimizer, every=1, signals=SIGNALS)
        for step in range(1, steps + 2):
            with watch.sampled(step):
                loss = self.batch.loss(self.batch.call(model))
                if loss is not None:
                    watch.loss(loss)
                    loss.backward()
                if step <= steps:
                    optimizer.step()
            model.zero_grad()
        return watch.history()


def _scope(model: nn.Module, optimizers: list[Any]) -> dict[str, Any]:
    import normkit as nk

    own = optimizers[0] if len(optimizers) == 1 else None
    return {"model": model, "optimizer": own, "nk": nk, "nn": nn, "torch": torch, "F": nn.functional}


def _movement(before: float, after: float, trial: Trial) -> str:
    write = trial.write
    if trial.steps:
        return f"to {write(after)}; without the line, to {write(before)}"
    if write(before) == write(after) or abs(after - before) < SAME * abs(before):
        return f"stays at {write(after)}"
    return f"{'falls' if after < before else 'rises'} from {write(before)} to {write(after)}"
