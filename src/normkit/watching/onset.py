"""Where numbers first were not finite: data, output or gradient, looked at on every step by one sum each."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from normkit.watching import taps
from normkit.watching.sample import is_skipped
from normkit.watching.signals import data
from normkit.watching.signals.output import scores_in
from normkit.watching.signals.signal import first_tensor

PLACES = {"data": "bad_data", "output": "bad_output", "gradient": "bad_gradient"}
"""What each place is called among the numbers."""
WAITING = 4096  # sums that wait on their devices; of more the devices are waited for between two samples


class Onset:
    """Keeps a sum a step and place on its device, and the first step that was bad of each place."""

    def __init__(self) -> None:
        self.first = dict.fromkeys(PLACES, 0)
        self.kept: list[tuple[int, str, Tensor]] = []
        self.calls: list[tuple[str, Tensor]] = []
        self.watched: nn.Parameter | None = None

    def listen(self, model: nn.Module) -> Any:
        """Look at each call of the whole model; returns the handle of the hook."""
        return taps.hook_after(model, self.hook)

    def hook(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Look at a call of the whole model."""
        if not is_skipped(module):
            scores = scores_in(output)
            self._add("data", data.first_input(args, kwargs))
            self._add("output", first_tensor(output) if scores is None else scores)

    def _add(self, place: str, x: Tensor | None) -> None:
        if x is None or not x.is_floating_point() or hasattr(x, "full_tensor"):
            return
        with contextlib.suppress(RuntimeError):  # some layouts have no sum; samples tell of them
            dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
            self.calls.append((place, x.detach().sum(dtype=dtype)))

    def step(self, step: int, model: nn.Module) -> None:
        """Look at one gradient, a small one: what is lost in the loss reaches all of them."""
        if self.watched is None or self.watched.grad is None:
            having = [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
            self.watched = min(having, key=Tensor.numel) if having else None
        if self.watched is not None:
            self._add("gradient", self.watched.grad)
        self.kept += [(step, place, total) for place, total in self.calls]
        self.calls = []
        if len(self.kept) > WAITING:
            self.look()

    def look(self) -> Tensor:
        """Return the first bad step of each place, 0 where there is none; here the device is waited for."""
        kept, self.kept = self.kept, []
        if kept:
            device = kept[-1][2].device
            fine = torch.stack([total.to(device) for *_, total in kept]).isfinite().tolist()
            for (step, place, _), is_fine in zip(kept, fine, strict=True):
                if not is_fine and not self.first[place]:
                    self.first[place] = step
        return torch.tensor([float(self.first[place]) for place in PLACES])
