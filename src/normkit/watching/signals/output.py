"""What the loss makes of a model's output: read from the output and its gradient, whoever computes the loss.

The gradient of a cross entropy of scores z is c (softmax(z) - e), with e the target's unit vector: it tells the target,
the loss, and the factor c. Of a softmax upon a softmax it is another one, which is known by it as well. That of the
mean square of n differences from a target is 2 / n of each: with the loss beside it, it tells the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit.watching.signals.parameters import factor_of
from normkit.watching.signals.signal import MOST, rows_of, vector
from normkit.watching.store import MEAN, MISSING

CLASSES = ("cross_entropy", "accuracy", "classes", "loss_scale", "softmax_twice", "rescaled")
SQUARES = ("square_error", "target_mean", "target_deviation")  # if the loss is a mean of squares
COUNTS = ("outputs", "counted", "targets")  # rows, those with a gradient, and those that loss and accuracy are read of
SCALE, RESCALED = CLASSES.index("loss_scale"), CLASSES.index("rescaled")
NUMBERS = dict.fromkeys((*CLASSES, *SQUARES, *COUNTS), MEAN)
FITS = 0.2  # of the gradient's length that may be left over: smoothed labels leave a tenth
BALANCED = 0.05  # of the length of a gradient, the sum over classes: that of a softmax has none, of sigmoids it has
ALONG = 0.999  # the cosine from which on a parameter's gradient is that of the bias which the output begins with
TINY = 1e-30


def scores_in(output: Any) -> Tensor | None:
    """Return the scores in what a model gives: what is called logits, else the first tensor of several axes."""
    if isinstance(output, Tensor):
        return output if output.is_floating_point() and output.dim() > 1 and output.requires_grad else None
    if isinstance(output, Mapping):
        parts = [output["logits"]] if "logits" in output else list(output.values())
    else:
        parts = list(output) if isinstance(output, tuple | list) else []
    return next((scores for part in parts if (scores := scores_in(part)) is not None), None)


def loss_in(output: Any) -> Tensor | None:
    """Return the loss in what a model gives: a lone number, the first of several, or what is called so.

    >>> loss_in({"loss": torch.ones(())}), loss_in(torch.ones(2)), loss_in((torch.zeros(()), torch.ones(2)))
    (tensor(1.), None, tensor(0.))
    """
    value = output[0] if isinstance(output, tuple) and output else output
    value = value.get("loss") if isinstance(value, Mapping) else getattr(value, "loss", value)
    return value if isinstance(value, Tensor) and value.dim() == 0 and value.is_floating_point() else None


class Target(NamedTuple):
    """The classes that a cross entropy took for those of some rows, which rows count, and what was read of it."""

    classes: Tensor
    live: Tensor
    read: Tensor

    def is_known(self) -> bool:
        """Whether the loss was a cross entropy, of scores; here the device is waited for."""
        return bool((self.read != MISSING).all()) and not bool(self.read[4])

    @property
    def scale(self) -> Tensor:
        """What the mean cross entropy was multiplied by."""
        return self.read[3]


class Outputs:
    """Hears the gradients that arrive at the outputs of one sampled step, of which there may be several."""

    def __init__(self) -> None:
        self.read: list[Tensor] = []
        self.squares: list[Tensor] = []
        self.counts: list[Tensor] = []
        self.sums: list[Tensor] = []  # over all rows of a gradient: what it is of a bias
        self.numbers: Tensor | None = None  # of the gradients up to an optimizer's step, and how many those were
        self.passes = 0

    def listens(self, scores: Tensor, know: Callable[[Target], None]) -> Callable[[Tensor], None]:
        """Return a hook for the gradient of some scores, which calls ``know`` with their target."""
        kept = rows_of_scores(scores.detach()).clone()

        def take(gradient: Tensor) -> None:
            slope = rows_of_scores(gradient).float()
            exact = gradient.dtype != torch.float16  # which loses small slopes, and with them the balance
            target = _of(kept, slope, gradient.numel() / gradient.shape[-1], exact)
            know(target)
            self.read.append(target.read)
            self.squares.append(_squares(kept.float(), slope * (gradient.numel() / 2)))
            self.counts.append(_counts(gradient.detach(), target))
            self.sums.append(gradient.detach().float().flatten(0, -2).sum(0))

        return take

    def values(self, parameters: Mapping[str, nn.Parameter], optimizer: Any = None) -> Tensor | None:
        """Return :data:`NUMBERS`, those of classes missing where the loss is no cross entropy; None where none came.

        They are of the gradients before the first step of an optimizer; all that step on these say what they got.
        """
        if self.numbers is None and self.read:
            self.passes, self.numbers = len(self.read), self._numbers()
        if self.numbers is not None and len(self.read) == self.passes:
            self._rescale(self.numbers, parameters, optimizer)
        return self.numbers

    def _numbers(self) -> Tensor:
        read = torch.stack(self.read)
        mean = read.mean(0)
        unknown = torch.full_like(mean[4], MISSING)
        numbers = torch.cat([mean[:3], vector(read[:, 3].sum(), mean[4], unknown)])
        known = torch.where((read == MISSING).any(), MISSING, numbers)
        counts = torch.stack(self.counts)
        targets = torch.where((counts[:, 2] == MISSING).any(), MISSING, counts[:, 2].sum())
        return torch.cat([known, torch.stack(self.squares).mean(0), counts[:, :2].sum(0), targets[None]])

    def _rescale(self, numbers: Tensor, parameters: Mapping[str, nn.Parameter], optimizer: Any) -> None:
        """Write by what the gradient was multiplied before the optimizer got it, by the output's bias."""
        shape = self.sums[0].shape
        for p in parameters.values():
            if p.shape == shape and p.grad is not None and not hasattr(p, "full_tensor"):
                total = torch.stack(self.sums).sum(0)
                slope = p.grad.detach().float().to(total.device) / factor_of(optimizer, total.device)
                sizes = slope.norm() * total.norm()
                same = (slope.dot(total) > ALONG * sizes) & (sizes > 0) & (numbers[SCALE] != MISSING)
                numbers[RESCALED] = torch.where(same, slope.norm() / total.norm().clamp(min=TINY), numbers[RESCALED])


def rows_of_scores(x: Tensor) -> Tensor:
    """Return the rows that are looked at, (rows, classes): of many evenly chosen ones."""
    return rows_of(x, -1, max(MOST // x.shape[-1], 1))


def _of(z: Tensor, slope: Tensor, count: float, exact: bool = True) -> Target:
    """Return the targets, and loss, accuracy, classes, scale and whether a softmax stands upon one, of (rows, classes).

    A target's slope alone is below 0, or rounds to 0 where its probability rounds to 1. Of sure rows without any slope
    as many count as right as make the scale 1: the others were left out of the loss.
    """
    target = torch.where(slope.amin(1, keepdim=True) < 0, slope.argmin(1, keepdim=True), z.argmax(1, keepdim=True))
    z, sloped = z.float(), (slope.abs().amax(1, keepdim=True) > 0).float()
    if z.shape[1] < 2:
        return Target(target[:, 0], sloped[:, 0] > 0, torch.full((5,), MISSING, device=slope.device))
    one = torch.zeros_like(z).scatter_(1, target, 1.0)
    p = z.softmax(1)
    factor, rest = _fit(slope, (p - one) * sloped)
    again = p.softmax(1) - one
    _, rest_twice = _fit(slope, p * (again - (p * again).sum(1, keepdim=True)) * sloped)
    are_shares = ((z.sum(1) - 1).abs() < 1e-2).all() & (z > -1e-6).all()
    twice = (are_shares & (rest < FITS)) | ((rest_twice < 0.05) & (rest > 5 * rest_twice) & (rest > 0.1))
    sure = (p.amax(1, keepdim=True) == 1) * (1 - sloped)
    right = (len(z) / (factor * count).clamp(min=TINY) - sloped.sum()) / sure.sum().clamp(min=1)
    live = sloped + sure * right.clamp(0, 1)
    scores = torch.where(twice & ~are_shares, p, z)
    rows = live.sum().clamp(min=TINY)
    loss = ((torch.logsumexp(scores, 1, keepdim=True) - scores.gather(1, target)) * live).sum() / rows
    accuracy = ((z.argmax(1, keepdim=True) == target) * live).sum() / rows
    classes = torch.tensor(float(z.shape[1]), device=z.device)
    numbers = vector(loss, accuracy, classes, factor * count * live.mean(), twice)
    balanced = slope.sum(1).norm() <= BALANCED * slope.norm() if exact else torch.ones_like(twice)
    known = (((rest < FITS) & balanced) | twice) & (sloped.sum() > 0)
    return Target(target[:, 0], live[:, 0] > 0.5, torch.where(known, numbers, MISSING))


def _squares(z: Tensor, off: Tensor) -> Tensor:
    """Return the mean square of differences, and mean and deviation of what outputs then differ from."""
    target = z - off
    return vector(off.square().mean(), target.mean(), target.std(correction=0))


def _counts(gradient: Tensor, target: Target) -> Tensor:
    """Return :data:`COUNTS`; those of targets are missing where the loss is no cross entropy."""
    rows = (gradient != 0).any(-1)
    targets = torch.where((target.read == MISSING).any(), MISSING, target.live.sum())
    return vector(torch.tensor(rows.numel(), device=rows.device), rows.sum(), targets)


def _fit(slope: Tensor, form: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factor of a form that comes closest to a gradient, and the share of its length that is left."""
    factor = (slope * form).sum() / form.square().sum().clamp(min=TINY)
    return factor, (slope - factor * form).norm() / slope.norm().clamp(min=TINY)
