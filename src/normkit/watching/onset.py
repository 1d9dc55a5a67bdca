"""What each step tells: where numbers first were not finite, of data, output or gradient by a sum each; batches far
larger than all before; gradients that nothing sets to zero."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from normkit.watching import taps
from normkit.watching.sample import is_skipped
from normkit.watching.signals import data
from normkit.watching.signals.output import scores_in
from normkit.watching.signals.parameters import entries
from normkit.watching.signals.signal import first_tensor
from normkit.watching.store import BESIDE, LARGEST

PLACES = {"data": "bad_data", "output": "bad_output", "gradient": "bad_gradient"}
"""What each place is called among the numbers."""
NUMBERS = {**dict.fromkeys(PLACES.values(), LARGEST), "jump": LARGEST, "jump_step": BESIDE, "kept_gradients": LARGEST}
MANY = 10  # batches before one that may be called far larger; steps in a row that keep their gradient
WAITING = 4096  # sums that wait on their devices; of more the devices are waited for between two samples


class Onset:
    """Keeps a sum a step and place on its device, and the first step that was bad of each place."""

    def __init__(self) -> None:
        self.first = dict.fromkeys(PLACES, 0)
        self.kept: list[tuple[int, str, Tensor]] = []
        self.calls: list[tuple[str, Tensor]] = []
        self.watched: nn.Parameter | None = None
        self.owner = 0  # the number of its optimizer
        self.looked = 0  # the step of the last look at it
        self.handles: list[Any] = []  # of its hooks
        self.last: Tensor | None = None  # entries of its gradient at the last step
        self.again: Tensor | None = None  # whether the backward pass since then has added to them
        self.kept_gradients: Tensor | int = 0  # steps in a row that it has
        self.sums = 0  # of batches so far
        self.largest = 0.0  # of them
        self.jump = (0.0, 0.0)  # the largest ratio of one to all before, and its step

    def listen(self, model: nn.Module) -> Iterator[Any]:
        """Look at each call of the whole model; returns what ends it."""
        yield taps.hook_after(model, self.hook)
        yield self

    def remove(self) -> None:
        """Take the hook of the parameter off."""
        for handle in self.handles:
            handle.remove()
        self.handles, self.watched, self.last = [], None, None

    def hook(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Look at a call of the whole model."""
        if not is_skipped(module):
            scores = scores_in(output)
            self._add("data", data.first_input(args, kwargs))
            self._add("output", first_tensor(output) if scores is None else scores)

    def _add(self, place: str, x: Tensor | None, skipped: Tensor | None = None) -> None:
        if x is None or not x.is_floating_point() or hasattr(x, "full_tensor"):
            return
        with contextlib.suppress(RuntimeError):  # some layouts have no sum; samples tell of them
            dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
            total = x.detach().sum(dtype=dtype)
            total = total if skipped is None else total.masked_fill(skipped.to(total.device) > 0, 0.0)
            self.calls.append((place, total))

    def step(self, step: int, optimizers: Sequence[Optimizer], number: int) -> None:
        """Look at one gradient, a small one of those that are stepped on: what is lost in the loss reaches all.

        It is looked at where its own optimizer steps, ``optimizers[number]``: elsewhere it is not yet what it will be.
        """
        if number == self.owner or step > self.looked + 1:
            self._choose(optimizers, step)
        if number == self.owner and self.watched is not None:
            self._add("gradient", self.watched.grad, getattr(optimizers[number], "found_inf", None))
            self._count_kept(self.watched.grad)
            self.looked = step
        self.kept += [(step, place, total) for place, total in self.calls]
        self.calls = []
        if len(self.kept) > WAITING:
            self.look()

    def _choose(self, optimizers: Sequence[Optimizer], step: int) -> None:
        """Take the smallest parameter that has a gradient, if the one so far has none or is stepped on no longer."""
        if self.watched is None or self.watched.grad is None or step > self.looked + 1:
            stepped = [
                (p, number)
                for number, optimizer in enumerate(optimizers)
                for group in optimizer.param_groups
                for p in group["params"]
            ]
            having = [pair for pair in stepped if pair[0].grad is not None and not pair[0].grad.is_sparse]
            self.remove()
            self.watched, self.owner = min(having, key=lambda pair: pair[0].numel()) if having else (None, self.owner)
            self.looked = step
            if self.watched is not None and self.watched.requires_grad:
                self.handles = [*self._hooks(self.watched)]

    def look(self) -> Tensor:
        """Return :data:`NUMBERS`, of each place the first bad step, 0 where there is none; the device is waited for."""
        kept, self.kept = self.kept, []
        if kept:
            device = kept[-1][2].device
            sums = torch.stack([total.double().to(device) for *_, total in kept]).tolist()
            for (step, place, _), total in zip(kept, sums, strict=True):
                is_masked = place == "output" and total == -math.inf  # no NaN, and none of +inf
                if not (math.isfinite(total) or is_masked or self.first[place]):
                    self.first[place] = step
            self._follow([(step, abs(x)) for (step, place, _), x in zip(kept, sums, strict=True) if place == "data"])
        places = [float(self.first[place]) for place in PLACES]
        return torch.tensor([*places, *self.jump, float(int(self.kept_gradients) >= MANY)], device="cpu")

    def _follow(self, sizes: list[tuple[int, float]]) -> None:
        """Compare the sum of each batch with the largest of all before."""
        for step, size in sizes:
            if self.sums >= MANY and self.largest and math.isfinite(size):
                self.jump = max(self.jump, (size / self.largest, float(step)))
            self.sums += 1
            self.largest = max(self.largest, size) if math.isfinite(size) else self.largest

    def _hooks(self, parameter: nn.Parameter) -> Iterator[Any]:
        """Look, before a backward pass adds to a gradient, whether it still is that of the last step.

        The first hook is called for torch.autograd.grad too, which adds to none; the second is not.
        """
        same: list[Tensor] = []

        def before(_: Tensor) -> None:
            same.clear()
            if self.last is not None and parameter.grad is not None:
                with contextlib.suppress(Exception), torch.no_grad():
                    now = entries(parameter.grad)
                    same.append((now == self.last).all() & (now != 0).any())

        def after(_: Tensor) -> None:
            if self.again is None and same:
                self.again = same.pop()

        yield parameter.register_hook(before)
        yield parameter.register_post_accumulate_grad_hook(after)

    def _count_kept(self, gradient: Tensor | None) -> None:
        """Count the steps in a row whose gradient was added to that of the step before."""
        again, self.again = self.again, None
        self.kept_gradients = 0 if again is None else torch.where(again, self.kept_gradients + 1, 0)
        self.last = None if gradient is None or gradient.is_sparse else entries(gradient).clone()
