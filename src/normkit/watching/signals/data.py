"""What a model is fed: mean and size of its first floating tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from normkit.watching.signals.signal import first_tensor, some, vector
from normkit.watching.store import MEAN

NUMBERS = {"data_mean": MEAN, "data_rms": MEAN}


def read(x: Tensor) -> Tensor:
    """Return mean and root mean square; integers, such as words, are not read."""
    x = some(x)
    return vector(x.mean(), x.square().mean().sqrt())


def fed(args: Any, kwargs: Any) -> Tensor | None:
    """Return the first floating tensor that a model is called with."""
    x = first_tensor(args)
    return first_tensor(kwargs) if x is None else x


def examples(args: Any, kwargs: Any) -> int:
    """Return the length of the first axis of the first tensor that a model is called with, integers too."""
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.dim()]
    return len(tensors[0]) if tensors else 0


def is_finite(x: Tensor | None) -> Tensor:
    """Return whether all numbers of a tensor are finite, on its device; true where there is none."""
    if x is None or hasattr(x, "full_tensor"):
        return torch.tensor(True)
    return x.detach().sum(dtype=torch.float32).isfinite()
