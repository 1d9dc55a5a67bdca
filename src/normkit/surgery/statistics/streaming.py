"""A stream of batches through an adapter, beside the model as it was: ``normkit adapt MODEL --method tent``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from normkit.columns import number_of
from normkit.kinds.adapter import Adapter

NO_ANSWER = torch.iinfo(torch.long).min  # no label, not even one of -1 for those that are not known


@dataclass
class Stream:
    """What an adapter did over a stream: of each batch its samples, and how many answers changed and were right."""

    method: str
    samples: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    right_before: list[int] = field(default_factory=list)  # empty where there are no labels
    right_after: list[int] = field(default_factory=list)
    not_finite_before: list[int] = field(default_factory=list)  # outputs that are no answers
    not_finite: list[int] = field(default_factory=list)
    seconds: float = 0.0  # in the adapter
    alarms: list[tuple[int, str]] | None = None  # batches at which its guard spoke, and why; None: it has none
    broken: str = ""  # where and why the data ended with an error

    def to_dict(self) -> dict[str, Any]:
        """Return shares of all samples, and the last third's, in which the adapter had learned."""
        count, late = sum(self.samples), slice(2 * len(self.samples) // 3, None)
        shares: dict[str, Any] = {"changed": sum(self.changed) / count}
        if self.right_before:
            shares["accuracy_before"] = sum(self.right_before) / count
            shares["accuracy"] = sum(self.right_after) / count
            shares["accuracy_before_late"] = sum(self.right_before[late]) / sum(self.samples[late])
            shares["accuracy_late"] = sum(self.right_after[late]) / sum(self.samples[late])
            gains = zip(self.samples, self.right_before, self.right_after, strict=True)
            shares["worst_batch"] = min((after - before) / n for n, before, after in gains)
        if any(self.not_finite_before) or any(self.not_finite):
            shares |= {"not_finite_before": sum(self.not_finite_before), "not_finite": sum(self.not_finite)}
        if self.broken:
            shares["broken"] = self.broken
        if self.alarms is not None:
            shares["alarms"] = [call for call, _ in self.alarms]
        spent = 1e3 * self.seconds / count
        return {"method": self.method, "batches": len(self.samples), "samples": count, **shares, "ms_a_sample": spent}

    def __str__(self) -> str:
        row = self.to_dict()
        lines = [
            f"{self.method} over {row['batches']} batches, {row['samples']:,} samples: {row['changed']:.1%} of the "
            f"answers changed, {row['ms_a_sample']:.3g} ms a sample"
        ]
        if self.right_before:
            lines += [
                f"right           {row['accuracy_before']:.1%} as it was, {row['accuracy']:.1%} adapting",
                f"the last third  {row['accuracy_before_late']:.1%} as it was, {row['accuracy_late']:.1%} adapting",
                f"the worst batch {row['worst_batch']:+.1%}",
            ]
        if "not_finite" in row:
            lines.append(
                f"not finite      {number_of(row['not_finite_before'], 'output')} as it was, "
                f"{row['not_finite']:,} adapting; they are no answers, so none is right"
            )
        lines += [self.broken] if self.broken else []
        lines += [f"the guard spoke at batch {call}: {why}" for call, why in self.alarms or ()]
        return "\n".join(lines)


def run_stream(source: nn.Module, adapter: Adapter, batches: Iterable[Any], method: str) -> Stream:
    """Show an adapter all batches in order, and beside it the model as it was, ``source``, which stays as it is.

    Where the data end with an error, the stream ends there, and ``broken`` says so.
    """
    stream = Stream(method)
    for number, batch in enumerate(_until_error(iter(batches), stream)):
        x, y = parts(batch)
        _require_labels(stream, number, x, y)
        try:
            with torch.no_grad():
                before = _answers(adapter.logits(source, x))
            begun = time.perf_counter()
            after = _answers(adapter(x))
        except (ValueError, RuntimeError) as error:  # torch's own of a shape are of the second kind
            raise ValueError(f"adapt: batch {number} of data: {error}") from error
        stream.seconds += time.perf_counter() - begun
        stream.samples.append(len(after))
        stream.changed.append(int((before != after).sum()))
        stream.not_finite_before.append(int((before == NO_ANSWER).sum()))
        stream.not_finite.append(int((after == NO_ANSWER).sum()))
        if y is not None:
            stream.right_before.append(int((before == y).sum()))
            stream.right_after.append(int((after == y).sum()))
    if not stream.samples:
        raise ValueError("adapt: data has no batch")
    stream.alarms = None if adapter.guard is None else list(adapter.guard.alarms)
    return stream


def _answers(logits: Tensor) -> Tensor:
    """The class of the largest logit; none where that is not finite, which argmax would call class 0."""
    largest, classes = logits.max(-1)
    return classes.masked_fill(~largest.isfinite(), NO_ANSWER)


def _until_error(batches: Iterator[Any], stream: Stream) -> Iterator[Any]:
    """Go over batches; an error of theirs ends them, and is noted, unless it is the first that fails."""
    try:
        yield from batches
    except Exception as error:  # a loader's own, whatever it may be
        stream.broken = f"data ended with an error at batch {len(stream.samples)}: {type(error).__name__}: {error}"
        if not stream.samples:
            raise ValueError(f"adapt: {stream.broken}") from error


def _require_labels(stream: Stream, number: int, x: Tensor, y: Tensor | None) -> None:
    """Refuse a batch whose labels do not fit its inputs, or the batches before it."""
    if y is not None and len(y) != len(x):
        raise ValueError(f"adapt: batch {number} of data has {len(y)} labels for {len(x)} inputs")
    if number and (y is None) is bool(stream.right_before):
        raise ValueError(f"adapt: batch {number} of data has {'no ' * (y is None)}labels, unlike those before it")


def parts(batch: Any) -> tuple[Tensor, Tensor | None]:
    """Return the input of a batch and its labels: of a tensor, of (input, labels), or of a dict with "labels"."""
    if isinstance(batch, Mapping):
        labels = batch.get("labels")
        x = next((value for name, value in batch.items() if name != "labels"), None)
    else:
        x, labels = (*batch, None)[:2] if isinstance(batch, tuple | list) else (batch, None)
    if not isinstance(x, Tensor):
        raise TypeError(
            f"adapt: a batch of data must be a tensor, (inputs, labels) or a dict, not {type(batch).__name__}"
        )
    return x, labels
