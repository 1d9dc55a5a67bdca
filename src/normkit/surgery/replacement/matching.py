"""Let a new norm begin as the old one was: its parameters fitted to what the old one makes of an example."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from normkit.parameters import tensors_in
from normkit.surgery.flow import arguments
from normkit.surgery.recognition.specimen import first, quiet

STEPS = 60


def record_sites(model: nn.Module, example: Any, sites: Collection[str]) -> dict[str, tuple[Tensor, Tensor]]:
    """What each site is given, and makes of it, as a copy of the model in evaluation passes the example on."""
    twin = copy.deepcopy(model).eval()
    records: dict[str, tuple[Tensor, Tensor]] = {}
    for name in sites:

        def note(part: nn.Module, inputs: Any, named: Any, output: Any, name: str = name) -> None:
            records.setdefault(name, (next(tensors_in((inputs, named))).detach(), first(output).detach()))

        twin.get_submodule(name).register_forward_hook(note, with_kwargs=True)
    args, named = arguments(example)
    with quiet(), torch.no_grad():
        twin(*args, **named)
    return records


def match(new: nn.Module, x: Tensor, y: Tensor) -> float:
    """Fit a norm's parameters to the results that are wanted, in float64; return how far off it is left, relatively."""
    exact: Any = copy.deepcopy(new).double().train()
    x, y = (torch.cat(t.unbind() if t.is_nested else (t,)).double() for t in (x, y))  # rows of several lengths
    learned = [p.requires_grad_() for p in exact.parameters()]
    optimizer = torch.optim.LBFGS(learned, max_iter=STEPS, line_search_fn="strong_wolfe") if learned else None
    scale = y.square().mean().clamp(min=1e-30)

    def loss() -> Tensor:
        exact.zero_grad()
        far = (exact(x) - y).square().mean() / scale
        far.backward()
        return far

    with quiet():
        if optimizer is not None:
            optimizer.step(loss)
        with torch.no_grad():
            left = float(((exact(x) - y).square().mean() / scale).sqrt())
    kept = new.state_dict()
    for name, tensor in exact.state_dict().items():
        kept[name].copy_(tensor)
    return left
