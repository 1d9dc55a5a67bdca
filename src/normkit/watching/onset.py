"""What each step tells: where numbers first were not finite, of data, output or gradient by a sum each; batches far
larger than all before; gradients that nothing sets to zero."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from normkit.watching import taps
from normkit.watching.sample import is_skipped
from normkit.watching.signals import data
from normkit.watching.signals.output import scores_in
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
        self.last: tuple[Tensor | None, int] = None, 0  # its gradient at the last step, and how often that was written
        self.kept_gradients = 0  # steps in a row
        self.sums = 0  # of batches so far
        self.largest = 0.0  # of them
        self.jump = (0.0, 0.0)  # the largest ratio of one to all before, and its step

    def listen(self, model: nn.Module) -> Any:
        """Look at each call of the whole model; returns the handle of the hook."""
        return taps.hook_after(model, self.hook)

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
            self._compare(self.watched.grad)
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
            self.watched, self.owner = min(having, key=lambda pair: pair[0].numel()) if having else (None, self.owner)
            self.looked = step

    def look(self) -> Tensor:
        """Return :data:`NUMBERS`, of each place the first bad step, 0 where there is none; the device is waited for."""
        kept, self.kept = self.kept, []
        if kept:
            device = kept[-1][2].device
            fine = torch.stack([total.to(device) for *_, total in kept]).isfinite().tolist()
            for (step, place, _), is_fine in zip(kept, fine, strict=True):
                if not is_fine and not self.first[place]:
                    self.first[place] = step
            sizes = torch.stack([total.double().to(device) for *_, total in kept]).abs().tolist()
            self._follow([(step, size) for (step, place, _), size in zip(kept, sizes, strict=True) if place == "data"])
        places = [float(self.first[place]) for place in PLACES]
        return torch.tensor([*places, *self.jump, float(self.kept_gradients >= MANY)], device="cpu")

    def _follow(self, sizes: list[tuple[int, float]]) -> None:
        """Compare the sum of each batch with the largest of all before."""
        for step, size in sizes:
            if self.sums >= MANY and self.largest and math.isfinite(size):
                self.jump = max(self.jump, (size / self.largest, float(step)))
            self.sums += 1
            self.largest = max(self.largest, size) if math.isfinite(size) else self.largest

    def _compare(self, gradient: Tensor | None) -> None:
        """Count the steps whose gradient is the last one's tensor, written to once: by the backward pass alone.

        One that was set to zero in place is written to twice, and one that is set to None is another tensor.
        """
        now = gradient, gradient._version if gradient is not None else 0
        again = gradient is not None and gradient is self.last[0] and now[1] == self.last[1] + 1
        self.kept_gradients, self.last = self.kept_gradients + 1 if again else 0, now
