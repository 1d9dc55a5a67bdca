"""NumPy arrays where tensors are wanted: what comes as arrays goes back as arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def takes_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function of tensors be called with NumPy arrays: then tensors that it returns come back as arrays.

    Numbers keep their type, whole numbers become int64 as torch has them; no array is written to.

    >>> takes_arrays(lambda x: (x.sum(), x + 1))(np.array([1.0, 2.0]))
    (np.float64(3.0), array([2., 3.]))
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        if not any(isinstance(value, np.ndarray) for value in (*args, *kwargs.values())):
            return function(*args, **kwargs)
        with torch.no_grad():
            return _array(function(*map(_tensor, args), **{key: _tensor(value) for key, value in kwargs.items()}))

    return call


def _tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        return value
    wanted = np.dtype(np.int64) if value.dtype.kind in "iu" else value.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(value, wanted, ["C", "W"]))


def _array(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()[()]  # one number is a NumPy number, as NumPy's own functions return it
    if isinstance(value, tuple):
        parts = [_array(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
