"""Shifted streams: held-out samples, corrupted, in an order; what ``--shift``, ``--adapt`` and ``--stream`` name.

>>> corruptions_of(["noise", "blur:severity=5"], IMAGES)
[('noise', 3), ('blur', 5)]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit import check
from normkit.choice import parsed
from normkit.lab.plan import data, tasks
from normkit.lab.plan.corruptions import IMAGES, SEVERITIES, SIGNALS, TEXT, Corruption
from normkit.lab.plan.settings import ALL_SHIFTS, STREAMS, Settings, spell
from normkit.surgery.statistics.adapting import adapter_of

IID, CLASS, MIXED, RECURRING = STREAMS
SEVERITY, BATCH = 3, 32  # where none is named
ROUNDS = 3  # in which the corruptions of a recurring stream come back
SEQUENCES = 128  # of text that are shown


class Samples(NamedTuple):
    """What streams are made of: inputs, what is right, and the corruptions that fit.

    classes: one a sample where samples have one, else None.
    """

    x: Tensor
    y: Tensor
    corruptions: dict[str, Corruption]
    classes: Tensor | None


class Stream(NamedTuple):
    """Batches of inputs and of what is right, in order; ``shift`` names the corruption, or how several are mixed."""

    order: str
    shift: str
    batches: list[tuple[Tensor, Tensor]]


def require(settings: Settings) -> None:
    """Refuse names that there are none of."""
    if not settings.shift:
        return
    corruptions_of(settings.shift, {**IMAGES, **SIGNALS, **TEXT})
    orders_of(settings.stream)
    for text in settings.adapt:
        adapter_of(spell("adapt"), "adapt", text)


def corruptions_of(words: Sequence[str], fitting: dict[str, Corruption]) -> list[tuple[str, int]]:
    """Return corruptions with their severities; "all" is all that fit."""
    corruptions: dict[tuple[str, int], None] = {}
    for text in words:
        name, options = parsed(text)
        severity = options.pop("severity", SEVERITY)
        if options:
            raise ValueError(f"{spell('shift')} {text!r}: the only argument is severity, as in {name}:severity=5")
        if severity not in SEVERITIES or isinstance(severity, bool):
            raise ValueError(f"{spell('shift')} {text!r}: severity must be 1, 2, 3, 4 or 5, not {severity!r}")
        if name != ALL_SHIFTS:
            check.choice("compare", spell("shift"), name, [*fitting, ALL_SHIFTS])
        corruptions |= {(one, int(severity)): None for one in (fitting if name == ALL_SHIFTS else [name])}
    return list(corruptions)


def orders_of(words: Sequence[str]) -> list[tuple[str, str, int | None]]:
    """Return how each stream was typed, its order, and the samples of its batches.

    >>> orders_of(["iid", "class:batch=1"])
    [('iid', 'iid', None), ('class:batch=1', 'class', 1)]
    """
    orders = []
    for text in words:
        name, options = parsed(text)
        check.choice("compare", spell("stream"), name, tuple(STREAMS))
        batch = options.pop("batch", None)
        if options or not (batch is None or (isinstance(batch, int) and batch >= 1)):
            raise ValueError(
                f"{spell('stream')} {text!r}: the only argument is batch, at least 1, as in {name}:batch=8"
            )
        orders.append((text, name, batch))
    return orders


def samples(task: tasks.Task, settings: Settings) -> Samples:
    """Return the held-out samples of a task, or say why it has none that can be shifted."""
    name, source = spell("shift"), task.data
    if isinstance(source, data.Tokens) and not settings.model.startswith("hf:"):
        rows = min(SEQUENCES, (len(source.held_out) - 1) // source.length)
        tokens = source.held_out[: rows * source.length + 1].unfold(0, source.length + 1, source.length)
        return Samples(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), TEXT, None)
    batches = source.validation()
    pairs = all(
        tasks.is_pair(one) and isinstance(one[0], Tensor) and tasks.classes_of(one) is not None for one in batches
    )
    x = torch.cat([batch[0] for batch in batches]) if pairs else torch.empty(0)
    if not pairs or not x.is_floating_point() or x.dim() not in (3, 4) or isinstance(source, data.Rows | data.Matrices):
        raise ValueError(
            f"{name} needs images or signals (N, C, ...) with a class each, or text as bytes, which the data "
            f"{settings.data!r} are not"
        )
    y = torch.cat([batch[1] for batch in batches])
    return Samples(x, y, SIGNALS if x.dim() == 3 else IMAGES, y)


def require_fit(samples: Samples, settings: Settings) -> None:
    """Refuse corruptions and orders that do not fit the samples."""
    corruptions_of(settings.shift or (), samples.corruptions)
    for _, kind, _ in orders_of(settings.stream):
        if kind == CLASS and samples.classes is None:
            raise ValueError(f"{spell('stream')} {kind}: samples of text have no classes")


def streams(samples: Samples, settings: Settings, seed: int) -> Iterator[tuple[str, Stream]]:
    """Return the streams with how their order was typed: of each corruption one, or one of all of them."""
    require_fit(samples, settings)
    shifts = corruptions_of(settings.shift or (), samples.corruptions)
    g = data.generator(seed, 41)
    order = torch.randperm(len(samples.x), generator=g)
    x, y = samples.x[order], samples.y[order]
    classes = None if samples.classes is None else samples.classes[order]
    shown = [samples.corruptions[name](x, severity, g) for name, severity in shifts]
    names = [f"{name} {severity}" for name, severity in shifts]
    for text, kind, size in orders_of(settings.stream):
        batch = size or (BATCH if samples.classes is not None else max(1, BATCH // 4))
        if kind in (IID, CLASS):
            at = torch.arange(len(x)) if kind == IID or classes is None else classes.argsort(stable=True)
            for name, inputs in zip(names, shown, strict=True):
                yield text, Stream(kind, name, _cut(inputs[at], y[at], batch))
            continue
        every, right = torch.cat(shown), y.repeat(len(shown), *(1 for _ in y.shape[1:]))
        if kind == MIXED:
            at = torch.randperm(len(every), generator=g)
            yield text, Stream(kind, " + ".join(names), _cut(every[at], right[at], batch))
            continue
        parts = [inputs.tensor_split(ROUNDS) for inputs in shown]
        rights = y.tensor_split(ROUNDS)
        blocks = [pair for turn in range(ROUNDS) for part in parts for pair in _cut(part[turn], rights[turn], batch)]
        yield text, Stream(kind, " + ".join(names), blocks)


def clean(samples: Samples, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Return the samples as they are, in mixed batches."""
    order = torch.randperm(len(samples.x), generator=data.generator(seed, 43))
    return _cut(samples.x[order], samples.y[order], BATCH if samples.classes is not None else BATCH // 4)


def _cut(x: Tensor, y: Tensor, batch: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(x.split(batch), y.split(batch), strict=True))


class Places(nn.Module):
    """A model of text that returns the scores (N, K) of every place of every row."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.inner = model

    def forward(self, x: Any) -> Tensor:
        """Score every class."""
        return tasks.scores(self.inner(x)).flatten(0, -2)
