"""A trained model and its adapters on shifted streams."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normkit.kinds.adapter import Adapter
from normkit.kinds.guard import STOP, Guard
from normkit.lab.plan import shift, tasks
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.tasks import Task
from normkit.parameters import copy_model
from normkit.statistics import accurate
from normkit.surgery.statistics.adapting import adapt

WINDOW, LOST = 200, 10  # an adapter has collapsed where it has so many right answers fewer among the last so many
STEP = 32  # answers at least, of which the worst step is
BINS = 15  # of the calibration error

Batches = Sequence[tuple[Tensor, Tensor]]


def run(model: nn.Module, task: Task, settings: Settings, seed: int, device: torch.device) -> list[dict[str, Any]]:
    """Return what became of each adapter in each stream; ``why`` says of one that does not fit the model, why not."""
    samples = shift.samples(task, settings)
    samples = samples._replace(x=samples.x.to(device), y=samples.y.to(device))
    source = copy_model(model).eval().requires_grad_(False)
    source = source if samples.classes is not None else shift.Places(source)
    unshifted = shift.clean(samples, seed)
    clean = _accuracy(*_answers(source, unshifted)[:2])
    rows = []
    for order, stream in shift.streams(samples, settings, seed):
        logits, right, seconds = _answers(source, stream.batches)
        before = {"before": _accuracy(logits, right), "ece_before": calibration_error(logits, right)}
        before |= {"ms_before": 1e3 * seconds / len(right), "clean_before": clean}
        for name in settings.adapt:
            row = {"adapter": name, "stream": order, "shift": stream.shift, **before}
            torch.manual_seed(seed)
            rows.append(row | _adapt(source, name, stream.batches, logits, right, unshifted))
    return rows


def _adapt(
    source: nn.Module, name: str, batches: Batches, logits: Tensor, right: Tensor, clean: Batches
) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            adapter = adapt(copy_model(source).requires_grad_(True), method=name)
            mine, _, seconds = _answers(adapter, batches)
            kept = _accuracy(*_answers(_AsItIs(adapter), clean)[:2])
            spoke = alarm(logits, mine, batches)
    except (ValueError, RuntimeError) as error:
        return {"why": str(error)}
    hits, own = (side.argmax(1) == right for side in (logits, mine))
    lost = collapse(hits, own)
    stopped = len(right) if spoke is None else spoke
    return {
        "after": float(own.float().mean()),
        "guarded": float(torch.cat([own[:stopped], hits[stopped:]]).float().mean()),
        "worst": worst_step(hits, own, [y.numel() for _, y in batches]),
        "ms": 1e3 * seconds / len(right),
        "ece": calibration_error(mine, right),
        "clean": kept,
        "lost": lost,
        "spoke": spoke,
        "guard_right": spoke is None if lost is None else spoke is not None and spoke <= lost,
    }


class _AsItIs(nn.Module):
    """An adapter that begins each batch from where it is now, so that no batch learns from another."""

    def __init__(self, adapter: Adapter):
        super().__init__()
        self.adapter = adapter

    def forward(self, x: Tensor) -> Tensor:
        """Answer as the first batch from now on is answered."""
        return copy_model(self.adapter)(x)


def _answers(model: nn.Module, batches: Batches) -> tuple[Tensor, Tensor, float]:
    """Return scores (N, K), what is right (N,), and the processor's seconds."""
    begun, logits = time.process_time(), []
    for x, _ in batches:
        with torch.no_grad():
            logits.append(accurate(tasks.scores(model(x))).detach())
    spent = time.process_time() - begun
    return torch.cat(logits), torch.cat([y.flatten() for _, y in batches]), spent


def _accuracy(logits: Tensor, right: Tensor) -> float:
    return float((logits.argmax(1) == right).float().mean())


def alarm(logits: Tensor, mine: Tensor, batches: Batches) -> int | None:
    """Return after how many answers the guard of :class:`normkit.kinds.Guard` speaks, None if it never does."""
    guard, sizes = Guard("compare", STOP), [y.numel() for _, y in batches]
    for place, (a, b) in enumerate(zip(logits.split(sizes), mine.split(sizes), strict=True)):
        if guard.look(a, b):
            return sum(sizes[:place])
    return None


def collapse(hits: Tensor, own: Tensor) -> int | None:
    """Return after how many answers 10 right ones fewer than the source's are among the last 200, None if never.

    >>> right = torch.ones(100, dtype=torch.bool)
    >>> collapse(right, torch.arange(100) < 50), collapse(right, right)
    (59, None)
    """
    fewer = (hits.int() - own.int()).cumsum(0)
    before = torch.cat([fewer.new_zeros(WINDOW), fewer])[: len(fewer)]
    below = (fewer - before >= LOST).nonzero()
    return int(below[0]) if len(below) else None


def worst_step(hits: Tensor, own: Tensor, sizes: Sequence[int]) -> float:
    """Return the least change of accuracy over a batch, or over as many as hold 32 answers.

    >>> worst_step(torch.ones(4, dtype=torch.bool), torch.tensor([True, True, False, False]), [2, 2])
    -0.5
    """
    gains, count, gain = [], 0, 0.0
    parts = zip(hits.split(list(sizes)), own.split(list(sizes)), strict=True)
    for a, b in parts:
        count, gain = count + len(a), gain + float(b.sum() - a.sum())
        if count >= STEP:
            gains.append(gain / count)
            count, gain = 0, 0.0
    return min(gains, default=gain / max(count, 1))


def calibration_error(logits: Tensor, right: Tensor) -> float:
    """Return the expected calibration error: over 15 bins of sureness, how far it lies from the share that is right.

    >>> logits = torch.tensor([[0.8, 0.2], [0.8, 0.2], [0.8, 0.2], [0.8, 0.2]]).log()
    >>> f"{calibration_error(logits, torch.tensor([0, 0, 0, 1])):.3f}"
    '0.050'
    """
    sure, answer = torch.softmax(accurate(logits), 1).max(1)
    hits = (answer == right).to(sure.dtype)
    place = (sure * BINS).ceil().long().clamp(1, BINS) - 1
    gaps = torch.zeros(BINS, dtype=sure.dtype, device=sure.device).index_add_(0, place, hits - sure)
    return float(gaps.abs().sum() / len(sure))
