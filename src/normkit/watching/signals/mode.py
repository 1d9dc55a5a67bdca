"""Whether a model is trained in evaluation mode."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from normkit.parameters import own_parameter
from normkit.watching.store import LEAST

NUMBERS = {"evaluating": LEAST}


def read(model: nn.Module, x: Tensor) -> Tensor | None:
    """Return 1 if all of a model is in evaluation mode, else 0; nothing where no part computes otherwise in it.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    >>> read(model.eval(), torch.ones(1)), read(model.train(), torch.ones(1)), read(model[0], torch.ones(1))
    (tensor([1.]), tensor([0.]), None)
    """
    parts = [part for part in model.modules() if differs(part)]
    if not parts:
        return None
    training = model.training or any(part.training for part in parts)
    return torch.full((1,), float(not training), device=x.device)


def differs(part: nn.Module) -> bool:
    """Whether a part drops entries, or normalizes a batch by its own statistics; not if its gains are frozen."""
    if isinstance(part, _DropoutNd):
        return part.p > 0
    gains = own_parameter(part, "weight")  # not by getattr: to read a parametrized weight may change it
    return isinstance(getattr(part, "running_var", None), Tensor) and (gains is None or gains.requires_grad)
