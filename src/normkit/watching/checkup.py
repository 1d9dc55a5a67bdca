"""A minute before a long training: what would go wrong in it, tried on copies of the model."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.columns import aligned, number_of
from normkit.surgery.proof import require_model
from normkit.watching import health
from normkit.watching.causes import by_cause
from normkit.watching.diagnosis import Diagnosis
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History
from normkit.watching.inspecting import batches_for, dense_copy, feed_to, is_finite, known_loss
from normkit.watching.rules import half_headroom
from normkit.watching.watching import Watch

Loss = Callable[[Any, Any], Tensor]

BATCHES = 32  # that are taken, and gone through again and again
LOWEST, HIGHEST, RATES = 1e-6, 10.0, 64  # rates of the range test, a step each
SAME = 2  # of these, on which it is tried what the loss bears
WORSE = 1.5  # times the first loss, from which on a rate is not borne
USUAL = 3e-3  # the highest rate that is tried where none is planned
APART = 10.0  # between the first rate that is not borne, and the one to train at
STEPS = 60  # of the training on a copy
TOO_LOW = "rate-too-low"  # of a rate that nobody planned
GAP, LEAST = 0.5, 0.1  # of evaluation over training: the share of the loss, and the difference, that is too much


@dataclass(frozen=True)
class Checkup:
    """What was seen; printed as numbers, the blocks, and a list of what to mend.

    limit: the lowest rate of the range test that the loss did not bear; highest: the last one tried, 0 if none.
    loss: which it is, in words. rate, steps, losses: of the training.
    train, evaluation: the loss on the same batches in both modes after it.
    noise: the noise scale, or nothing.
    """

    history: History
    mend: Diagnosis
    limit: float
    highest: float
    loss: str
    rate: float
    steps: int
    losses: tuple[float, float]
    train: float
    evaluation: float
    largest: float
    without_gradient: tuple[str, ...]
    noise: str

    def __str__(self) -> str:
        blocks = ["\n".join(aligned(health.table(self.history), numbers=True))] if self.history.steps else []
        return "\n\n".join([health.head(self.history), "\n".join(aligned(self.rows())), *blocks, self._mend()])

    def rows(self) -> list[tuple[str, str]]:
        """Return what was measured, in words; without a sample that is the losses alone."""
        sizes = [self.history.series(name, "rms") for name in self.history.facts["blocks"]]
        first = [number(float(series[0])) for series in sizes if len(series) and not math.isnan(series[0])]
        lost = f"{len(self.without_gradient)} get none" if self.without_gradient else "all get one"
        none = (
            f"none up to {number(self.highest)}" if self.highest else "none tried: the loss is not finite before a step"
        )
        bound = number(self.limit) if math.isfinite(self.limit) else none
        looked = [("size by depth, at the start", " ".join(first)), ("parameters and gradients", lost)]
        top = ("largest value", f"{number(self.largest)}; float16 ends at {half_headroom.LARGEST:g}")
        return [
            *(looked if self.history.steps else []),
            ("loss", self.loss),
            ("rate that the loss does not bear", bound),
            (f"loss of {number_of(self.steps, 'step')} at {number(self.rate)}", " to ".join(map(number, self.losses))),
            ("loss in training and evaluation", f"{number(self.train)} and {number(self.evaluation)}"),
            *([top] if self.history.steps else []),
            *([("gradient noise", self.noise)] if self.noise else []),
        ]

    def _mend(self) -> str:
        nothing = "Nothing to mend" if self.history.steps else "Nothing was looked at"
        head = f"To mend: {len(self.mend)}" if self.mend else nothing
        return "\n\n".join([head, *self.mend.text().split("\n\n")[1:]])

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"numbers": dict(self.rows()), **self.mend.to_dict()}


@torch.inference_mode(False)  # which also turns gradients on
def checkup(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    loss: Loss | None = None,
    rate: float | None = None,
    seconds: float = 60.0,
) -> Checkup:
    """Look for what would go wrong in a training, in about a minute; the model is left as it was.

    On copies: a range test, in which AdamW's rate rises from step to step, up to 10, until the loss no longer bears it;
    then a training of 60 steps, which is watched step by step; then the same batches in evaluation. The training is at
    ``rate``, else at a tenth of the rate that the loss did not bear, but at most 0.003.

    Args:
        model: as it is to be trained.
        batches: what it is fed, of which the first 32 are taken: tensors, tuples of inputs and classes, or keyword
            arguments.
        loss: of what the model gives and the batch; else the model's own, the cross entropy of the classes or of the
            next token, or the squared distance to the numbers that a batch has.
        rate: the learning rate that is planned.
        seconds: about how long it may take; what is not done by then is left out.

    >>> torch.manual_seed(0); x = torch.randn(64, 8)  # doctest: +ELLIPSIS
    <torch...>
    >>> model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    >>> found = checkup(model, [(x, (x[:, 0] > 0).long())])
    >>> print(found.mend)
    Nothing found in 60 samples of 3 layers, steps 1 to 60
    """
    require_model("checkup", model)
    if rate is not None:
        rate = check.number("checkup", "rate", rate, 0.0, open_low=True)
    looked = batches_for("checkup", batches, BATCHES)
    kinds = dict[str, None]()
    measure = loss or functools.partial(_loss_of, kinds)
    end = time.monotonic() + check.number("checkup", "seconds", seconds, 0.0, open_low=True)
    with torch.random.fork_rng():
        limit, highest = _limit(dense_copy(model).train(), looked, measure, end - seconds / 2)
        own = rate or min(limit / APART, USUAL)
        twin = dense_copy(model).train()
        watch, losses, steps = _train(twin, looked, measure, own, end)
        train, evaluation = (_mean_loss(twin.train(mode), looked, measure) for mode in (True, False))
    history = watch.history()
    without = _without_gradient(history)
    largest = max((float(s[0]) for s in history.of("largest").values() if len(s) and s[0] == s[0]), default=math.nan)
    extra = [*_gap(train, evaluation, steps), *_overflow(largest), *_rate(rate, limit)]
    diagnosis = watch.diagnosis()
    named = [finding for finding in diagnosis if rate is not None or finding.rule != TOO_LOW]
    mend = Diagnosis(tuple(by_cause([*named, *extra])), diagnosis.seen, diagnosis.notes)
    noise = str(watch.noise_scale()) if history.names("one_square") else ""
    words = "yours" if loss else "; ".join(kinds)
    return Checkup(history, mend, limit, highest, words, own, steps, losses, train, evaluation, largest, without, noise)


def _loss_of(kinds: dict[str, None], output: Any, batch: Any) -> Tensor:
    """Return the loss that a batch tells of, and add to ``kinds`` what it is, in words."""
    known = known_loss(output, batch)
    if known is None:
        raise ValueError(
            "checkup: batches must be inputs and targets that fit what the model gives, or the model must give its "
            "loss; for any other training hand in its loss, a function of what the model gives and the batch"
        )
    words, loss = known
    kinds[words] = None
    return loss


def _limit(model: nn.Module, batches: list[Any], measure: Loss, end: float) -> tuple[float, float]:
    """Return the rate at which the loss has left what it was, infinity if none, and the last rate tried, 0 if none.

    It is that of the same few batches behind every step, as one batch's may be many times another's.
    """
    optimizer = torch.optim.AdamW(_trainable(model), lr=LOWEST)
    batches = [batch for batch in batches if is_finite(batch)]
    first = best = _mean_loss(model, batches[:SAME], measure) if batches else math.nan
    if not math.isfinite(first):
        return math.inf, 0.0
    for number_of_step, batch in zip(range(RATES), itertools.cycle(batches), strict=False):
        rate = LOWEST * (HIGHEST / LOWEST) ** (number_of_step / (RATES - 1))
        for group in optimizer.param_groups:
            group["lr"] = rate
        _step(model, optimizer, batch, measure)
        value = _mean_loss(model, batches[:SAME], measure)
        best = min(best, value)
        if not math.isfinite(value) or (value - best > (WORSE - 1) * abs(first) and number_of_step > 2):
            return rate, rate
        if time.monotonic() > end:
            break
    return math.inf, rate


def _train(model: nn.Module, batches: list[Any], measure: Loss, rate: float, end: float) -> Any:
    """Train a copy under a watch; return it, with the first and the last loss and how many steps there were."""
    optimizer = torch.optim.AdamW(_trainable(model), lr=rate)
    losses = []
    with Watch(model, optimizer, every=1) as watch:
        for _, batch in zip(range(STEPS), itertools.cycle(batches), strict=False):
            losses.append(_step(model, optimizer, batch, measure, watch))
            if time.monotonic() > end:
                break
    return watch, (losses[0], sum(losses[-5:]) / len(losses[-5:])), len(losses)


def _number(measure: Loss, output: Any, batch: Any) -> Tensor:
    loss = measure(output, batch)
    if not isinstance(loss, Tensor):
        came = f"a {type(loss).__name__}"
    elif loss.numel() != 1:
        came = f"numbers of shape {tuple(loss.shape)}"
    elif torch.is_grad_enabled() and not loss.requires_grad:
        came = "one without a gradient"
    else:
        return loss
    raise ValueError(f"checkup: loss must give a single number with a gradient, not {came}")


def _step(model: nn.Module, optimizer: Any, batch: Any, measure: Loss, watch: Watch | None = None) -> float:
    loss = _number(measure, feed_to("checkup", model, batch), batch)
    if watch is not None:
        watch.loss(loss)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


@torch.no_grad()
def _mean_loss(model: nn.Module, batches: list[Any], measure: Loss) -> float:
    few = batches[:8]
    return sum(float(_number(measure, feed_to("checkup", model, batch), batch)) for batch in few) / len(few)


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    params = [p for p in model.parameters() if p.requires_grad]
    if not params:
        raise ValueError(f"checkup: no parameter of {type(model).__name__} requires a gradient")
    return params


def _without_gradient(history: History) -> tuple[str, ...]:
    read = history.of("gradient")
    return tuple(name for name in history.facts["shapes"] if name not in read or not (read[name] != 0).any())


def _gap(train: float, evaluation: float, steps: int) -> Iterator[Finding]:
    if evaluation - train > max(GAP * abs(train), LEAST) or (math.isfinite(train) and not math.isfinite(evaluation)):
        yield Finding(
            "evaluation is not training",
            3.9,
            ("loss",),
            f"the loss on the same batches is {number(train)} in training and {number(evaluation)} in evaluation, "
            f"after {number_of(steps, 'step')}.",
            leads="a model that is right in training and wrong in evaluation",
            remedies=(
                Remedy("recalibrate", "nk.recalibrate(model, batches), where batch norms lag behind", runs=False),
            ),
            rule="train-eval-gap",
        )


def _overflow(largest: float) -> Iterator[Finding]:
    if largest > half_headroom.LARGEST / half_headroom.BITS:
        yield Finding(
            "half precision would overflow",
            3.2,
            (),
            f"the largest value that a layer gives at the start is {number(largest)}, and float16 ends at "
            f"{half_headroom.LARGEST:g}.",
            leads="infinity in one layer, NaN in all",
            remedies=(Remedy("bfloat16", "torch.autocast(device, dtype=torch.bfloat16)"),),
            rule="half-overflow",
        )


def _rate(rate: float | None, limit: float) -> Iterator[Finding]:
    if rate is not None and rate >= limit:
        yield Finding(
            "the planned rate is too high",
            6.2,
            (),
            f"in the range test the loss left what it was at {number(limit)}, and {number(rate)} is planned.",
            leads="a loss that diverges",
            remedies=(Remedy("a lower rate", f"lr={number(limit / APART)}"),),
            rule="rate-range",
        )
