"""NumPy arrays where tensors are wanted: what comes as arrays goes back as arrays."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


class NoNumbers(ValueError):
    """The numbers of a tensor on the meta device were asked for."""


def takes_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function of tensors be called with NumPy arrays: then tensors that it returns come back as arrays.

    Numbers keep their type, whole numbers become int64 as torch has them; no array is written to. A tensor on the meta
    device is refused by name where its numbers are read.

    >>> takes_arrays(lambda x: (x.sum(), x + 1))(np.array([1.0, 2.0]))
    (np.float64(3.0), array([2., 3.]))
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        if not any(isinstance(value, np.ndarray) for value in (*args, *kwargs.values())):
            try:
                return function(*args, **kwargs)
            except (RuntimeError, NoNumbers):  # torch's own, which names no argument, or what a function below says
                _refuse_what_holds_no_numbers(function, args, kwargs)
                raise
        with torch.no_grad():
            return _array(function(*map(_tensor, args), **{key: _tensor(value) for key, value in kwargs.items()}))

    return call


def _refuse_what_holds_no_numbers(function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Name the first tensor on the meta device, if there is one."""
    for name, value in inspect.signature(function).bind(*args, **kwargs).arguments.items():
        if any(tensor.is_meta for tensor in _tensors(value)):
            called = function.__name__.replace("_", "-")
            raise NoNumbers(f"{called}: {name} is on meta, where there are no numbers, but they are read") from None


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors of an argument: a state has them by name, a list of clients' states deeper."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from itertools.chain(value.parameters(), value.buffers())
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part)


def _tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        return value
    dtype = np.dtype(np.int64) if value.dtype.kind in "iu" else value.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(value, dtype, ["C", "W"]))


def _array(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()[()]  # one number is a NumPy number, as NumPy's own functions return it
    if isinstance(value, tuple):
        parts = [_array(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
