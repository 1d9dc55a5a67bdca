"""The sums template: what each program has added up of the gradients of gain and bias, added up in one order."""

from __future__ import annotations

import triton.language as tl

from normkit.kernels.cuda.templates.language import add_up, jit


@jit
def column(sums, to, programs, dim, at, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The sums over all programs of BLOCK columns."""
    total = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    for first in range(0, programs, ROWS):
        row = first + tl.arange(0, ROWS)
        mask = (row < programs)[:, None] & (at < dim)[None, :]
        total += tl.load(sums + row[:, None] * dim + at[None, :], mask=mask, other=0.0)
    tl.store(to + at, add_up(total, 0).to(to.dtype.element_ty), mask=at < dim)


@jit
def all_of(sums, to, count, MANY: tl.constexpr):
    """The sum of `count` numbers, MANY at a time, by the first program."""
    if tl.program_id(0) == 0:
        at = tl.arange(0, MANY)
        total = tl.full([MANY], 0.0, tl.float32)
        for first in range(0, count, MANY):
            total += tl.load(sums + first + at, mask=first + at < count, other=0.0)
        tl.store(to, add_up(total, 0).to(to.dtype.element_ty))


@jit(do_not_specialize=["programs", "count"])
def add_up_programs(
    gains, biases, alphas, shifts, dweight, dbias, dalpha, dshift, programs, dim, count,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of gain and bias, one number a column, and of two that all share; any may be absent."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if gains is not None:
        column(gains, dweight, programs, dim, at, ROWS, BLOCK)
    if biases is not None:
        column(biases, dbias, programs, dim, at, ROWS, BLOCK)
    if alphas is not None:
        all_of(alphas, dalpha, count, ROWS * BLOCK)
    if shifts is not None:
        all_of(shifts, dshift, count, ROWS * BLOCK)
