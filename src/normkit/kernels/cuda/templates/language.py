"""What all templates are written in: functions that are compiled for a GPU, or interpreted where there is none.

Triton's interpreter is chosen for a whole process, by a variable, before Triton is imported. A :class:`Function` can be
either at any time, so that a test interprets a kernel and reads its machine code side by side.
"""

from __future__ import annotations

import functools

import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

SMALLEST = tl.constexpr(2.0**-126)  # of float32's normal numbers


class Function(JITFunction):
    """A kernel, or a function that kernels call."""

    @functools.cached_property
    def interpreted(self) -> InterpretedFunction:
        """The same, run on CPU tensors by Triton's interpreter."""
        return InterpretedFunction(self.fn)

    def __call__(self, *args, **constants):
        """Run inside of an interpreted kernel; the compiler never calls."""
        return self.interpreted.rewrite()(*args, **constants)


def jit(function=None, **options):
    """Make a :class:`Function` of a function, as `triton.jit` does."""
    if function is None:
        return functools.partial(jit, **options)
    return Function(function, **options)


@jit
def add_up(x, axis: tl.constexpr):
    """Sum along an axis. Not `tl.sum`, which Triton makes compiled or interpreted when it is imported."""
    return tl.reduce(x, axis, tl.standard._sum_combine)


@jit
def add_up_both(a, b, axis: tl.constexpr):
    """Two sums along an axis on one way through shared memory."""
    return tl.split(add_up(tl.join(a, b), axis))


@jit
def largest(x, axis: tl.constexpr):
    """Maximum along an axis, NaN where there is one."""
    most = tl.reduce(x, axis, tl.standard._elementwise_max)
    odd = add_up(tl.where(x != x, 1.0, 0.0), axis)
    return tl.where(odd > 0, float("nan"), most)


@jit
def root(x):
    """Square root, rounded as IEEE has it, subnormal numbers and all."""
    return tl.sqrt_rn(x)


@jit
def over_root(x):
    """One over the square root, within 2^-22.9, of subnormal numbers too, which GPUs take for 0 here."""
    small = x < SMALLEST
    return tl.rsqrt(tl.where(small, x * 2.0**64, x)) * tl.where(small, 2.0**32, 1.0)


@jit
def over(a, b):
    """Quotient, rounded as IEEE has it: `/` is an approximation on GPUs."""
    return tl.div_rn(a, b)


@jit
def for_all(numbers, at, dim, ROWS: tl.constexpr, FULL: tl.constexpr = 0):
    """Gains or shifts of the entries `at`, loaded by whoever holds an entry: nothing goes from thread to thread."""
    each = tl.full([ROWS, 1], 0, tl.int32) + at[None, :]
    if FULL:
        return tl.load(numbers + each).to(tl.float32)
    else:
        return tl.load(numbers + each, mask=each < dim, other=0.0).to(tl.float32)
