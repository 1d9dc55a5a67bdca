"""Where numbers first were not finite: data, output or gradient, looked at on every step by one sum each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from normkit.watching.sample import skipped
from normkit.watching.signals import data
from normkit.watching.signals.output import scores_in

PLACES = {"data": "bad_data", "output": "bad_output", "gradient": "bad_gradient"}
"""What each place is called among the numbers."""


class Onset:
    """Keeps a truth value a step and place on its device, and the first step that was bad of each place."""

    def __init__(self) -> None:
        self.first = dict.fromkeys(PLACES, 0)
        self.kept: list[tuple[int, str, Tensor]] = []
        self.calls: list[tuple[str, Tensor]] = []
        self.watched: nn.Parameter | None = None

    def hook(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Look at a call of the whole model."""
        if not skipped(module):
            self.calls.append(("data", data.is_finite(data.fed(args, kwargs))))
            self.calls.append(("output", data.is_finite(scores_in(output))))

    hook.looks_on = True  # type: ignore[attr-defined]

    def step(self, step: int, model: nn.Module) -> None:
        """Look at one gradient, a small one: what is lost in the loss reaches all of them."""
        if self.watched is None or self.watched.grad is None:
            having = [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]
            self.watched = min(having, key=Tensor.numel) if having else None
        if self.watched is not None:
            self.calls.append(("gradient", data.is_finite(self.watched.grad)))
        self.kept += [(step, place, fine) for place, fine in self.calls]
        self.calls = []

    def look(self) -> Tensor:
        """Return the first bad step of each place, 0 where there is none; here the device is waited for."""
        kept, self.kept = self.kept, []
        if kept:
            device = kept[-1][2].device
            values = torch.stack([fine.to(device) for *_, fine in kept]).tolist()
            for (step, place, _), fine in zip(kept, values, strict=True):
                if not fine and not self.first[place]:
                    self.first[place] = step
        return torch.tensor([float(self.first[place]) for place in PLACES])
