"""Triton's interpreter, made to round as a GPU does."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from triton.runtime import interpreter

_alone = threading.Lock()  # while a kernel is interpreted, functions of Triton itself stand exchanged


def interpret(kernel, grid: tuple[int, ...], arguments: tuple, constants: dict) -> None:
    """Run a kernel on CPU tensors; a GPU gets its numbers as float32."""
    arguments = tuple(float(np.float32(a)) if isinstance(a, float) else a for a in arguments)
    with _alone, _rounding(), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of a maximum of NaN alone
        kernel.interpreted[grid](*arguments, **constants)


@contextmanager
def _rounding() -> Iterator[None]:
    """Within it float32 is rounded to bfloat16, which the interpreter cuts off: up to twice the error of any GPU.

    And sums are those of a tree, which numpy's along another axis than the last in memory are not.
    """
    given, summed = interpreter._convert_float, interpreter.ReduceOps.sum

    def convert(data, kind, to, mode):
        if kind.name == "fp32" and to.name == "bf16":
            return to_bfloat16(data)
        return given(data, kind, to, mode)

    def add_up(self, x):
        data = x.handle.data
        if self.axis is None:
            return summed(self, x)
        total = np.ascontiguousarray(np.moveaxis(data, self.axis, -1)).sum(-1, dtype=data.dtype)
        return self.to_tensor(np.expand_dims(total, self.axis) if self.keep_dims else total, x.dtype)

    interpreter._convert_float, interpreter.ReduceOps.sum = convert, add_up
    try:
        yield
    finally:
        interpreter._convert_float, interpreter.ReduceOps.sum = given, summed


def to_bfloat16(data: np.ndarray) -> np.ndarray:
    """The bits of the nearest bfloat16, the even one of two.

    >>> [hex(bits) for bits in to_bfloat16(np.array([1.00390625, 1.01171875, np.nan], dtype=np.float32))]
    ['0x3f80', '0x3f82', '0x7fc0']
    """
    bits = np.ascontiguousarray(data, dtype=np.float32).view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(data), (bits >> 16) | 0x40, nearest).astype(np.uint16).reshape(data.shape)
