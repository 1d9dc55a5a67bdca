"""The pointwise template: y = scale * f(alpha * x + shift) * gain + bias, as `kernels/cpu/pointwise.h` has it.

A row is `width` entries; its gain is one per entry (features last) or one for the row (BY_ROW: channels first).
Gradients of what many entries share get one partial sum a program.
"""

from __future__ import annotations

import triton.language as tl

from normkit.kernels.cuda.templates.language import add_up, for_all, jit
from normkit.kernels.cuda.templates.maths import ELN, HALF_PI, SATURSIN, value_and_slope
from normkit.kernels.cuda.templates.row import within


@jit
def single(number):
    """A number of the layer, 0 where it is absent."""
    if number is None:
        return 0.0
    else:
        return tl.load(number).to(tl.float32)


@jit
def along(
    numbers, row, rows, at, dim, width,
    other: tl.constexpr, BY_ROW: tl.constexpr, FULL: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Gains or shifts as they broadcast to a tile; `other` where they are absent."""
    if numbers is None:
        return other
    elif BY_ROW:
        return tl.load(numbers + row % dim, mask=row < rows, other=0.0).to(tl.float32)[:, None]
    else:
        return for_all(numbers, at, width, ROWS, FULL)


@jit
def scaled(v, scale):
    """Times the scale, which is 1 where it is None."""
    return v if scale is None else v * scale


@jit(do_not_specialize=["rows"])
def forward(
    x, alpha, shift, weight, bias, y, rows, dim, width, scale,
    FUNCTION: tl.constexpr, BY_ROW: tl.constexpr, FULL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y of a tile."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    _, inside = within(row, rows, at, width, FULL, ROWS)
    where = row[:, None] * width + at[None, :]
    v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    f, _ = value_and_slope(v, single(alpha), single(shift), FUNCTION)
    out = f * scaled(along(weight, row, rows, at, dim, width, 1.0, BY_ROW, FULL, ROWS), scale)
    out += along(bias, row, rows, at, dim, width, 0.0, BY_ROW, FULL, ROWS)
    tl.store(y + where, out.to(y.dtype.element_ty), mask=inside)


@jit(do_not_specialize=["rows", "chunk"])
def backward(
    x, grad, alpha, shift, weight, dx, dalpha, dshift, dgain, dbias, rows, chunk, dim, width, scale,
    FUNCTION: tl.constexpr, BY_ROW: tl.constexpr, FULL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of BLOCK columns of `chunk` rows, a multiple of ROWS, and the program's share in the other gradients."""
    program = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1)
    columns = tl.num_programs(1)
    at = column * BLOCK + tl.arange(0, BLOCK)
    a = single(alpha)
    b = single(shift)
    gains = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    shifts = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    alphas = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    betas = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    for first in range(0, tl.minimum(chunk, rows - program * chunk).to(tl.int32), ROWS):
        row = program * chunk + first + tl.arange(0, ROWS)
        _, inside = within(row, rows, at, width, FULL, ROWS)
        where = row[:, None] * width + at[None, :]
        v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grad + where, mask=inside, other=0.0).to(tl.float32)
        f, slope = value_and_slope(v, a, b, FUNCTION)
        through = tl.where(inside, scaled(g * f, scale), 0.0)
        d = slope * (g * scaled(along(weight, row, rows, at, dim, width, 1.0, BY_ROW, FULL, ROWS), scale))
        if FUNCTION == SATURSIN:
            d = tl.where(tl.abs(a * v + b) <= HALF_PI, d, 0.0)
        tl.store(dx + where, (d * a).to(dx.dtype.element_ty), mask=inside)
        if dalpha is not None:
            alphas += tl.where(inside, d * v, 0.0)
        if dshift is not None:
            betas += tl.where(inside, d, 0.0)
        if BY_ROW:
            if dgain is not None:
                tl.store(dgain + row * columns + column, add_up(through, 1), mask=row < rows)
            if dbias is not None:
                tl.store(dbias + row * columns + column, add_up(g, 1), mask=row < rows)
        else:
            if dgain is not None:
                gains += through
            if dbias is not None:
                shifts += g
    if dalpha is not None:
        if FUNCTION == ELN:
            alphas *= -0.5
        tl.store(dalpha + program * columns + column, add_up(add_up(alphas, 1), 0))
    if dshift is not None:
        tl.store(dshift + program * columns + column, add_up(add_up(betas, 1), 0))
    if not BY_ROW:
        if dgain is not None:
            tl.store(dgain + program * width + at, add_up(gains, 0), mask=at < width)
        if dbias is not None:
            tl.store(dbias + program * width + at, add_up(shifts, 0), mask=at < width)
