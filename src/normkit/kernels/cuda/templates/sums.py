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


@jit(do_not_specialize=["programs"])
def add_up_programs(gains, biases, dweight, dbias, programs, dim, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The gradients of gain and bias, either of which may be absent."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if gains is not None:
        column(gains, dweight, programs, dim, at, ROWS, BLOCK)
    if biases is not None:
        column(biases, dbias, programs, dim, at, ROWS, BLOCK)
