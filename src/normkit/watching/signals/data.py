"""What a model is fed: mean and deviation of its first tensor, where that is floating."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from normkit.watching.signals.signal import moments, some, tensors_in, vector
from normkit.watching.store import MEAN

NUMBERS = {"data_mean": MEAN, "data_deviation": MEAN}


def read(x: Tensor) -> Tensor | None:
    """Return mean and standard deviation; integers, such as words, are not read."""
    if not x.is_floating_point() or not x.numel():
        return None
    mean, variance = moments(some(x).reshape(-1), [0])
    return vector(mean, variance.sqrt())


def first_input(args: Any, kwargs: Any) -> Tensor | None:
    """Return the first tensor that a model is called with; a floating one behind words is a mask.

    >>> import torch
    >>> first_input((torch.ones(2), torch.zeros(3)), {}), first_input((), {"x": [torch.zeros(1)]})
    (tensor([1., 1.]), tensor([0.]))
    """
    return next((x for x in tensors_in((args, kwargs)) if x.dim()), None)
