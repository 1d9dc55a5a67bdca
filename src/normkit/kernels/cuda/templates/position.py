"""The position template: the vector of channels at each position of (N, C, *space), as `kernels/cpu/position.h` has it.

    y = n * weight + bias,    n = (x - mean) * r,    dx = r * (h - mean(h) - n * mean(h n)),    h = g * weight

A program takes BLOCK neighbouring positions of a sample and walks down their channels, ROWS at a time: once for the
moments, about a pivot, and once more for what is written, from the cache. Nothing is kept for the backward pass.
"""

from __future__ import annotations

import triton.language as tl

from normkit.kernels.cuda.templates.language import add_up, jit, over, root


@jit
def vectors(channels, space, blocks, BLOCK: tl.constexpr):
    """Where the first entries of a program's vectors are, and which of them are there."""
    program = tl.program_id(0).to(tl.int64)
    at = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    return (program // blocks) * channels * space + at, at < space


@jit
def load(x, first, mask, c, channels, space):
    """Entries of the channels `c` in float32, and where they are."""
    where = first[None, :] + c.to(tl.int64)[:, None] * space
    inside = (c < channels)[:, None] & mask[None, :]
    return tl.load(x + where, mask=inside, other=0.0).to(tl.float32), where, inside


@jit
def measure(x, first, mask, channels, space, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of each vector in two parts, and r."""
    lane = tl.arange(0, ROWS)
    v, _, inside = load(x, first, mask, lane, channels, space)
    pivot = add_up(v * over(1.0, tl.minimum(channels, ROWS) * 1.0), 0)
    mean = tl.where(inside, v - pivot[None, :], 0.0)
    square = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    taken = 1.0
    for begin in range(ROWS, channels, ROWS):
        v, _, inside = load(x, first, mask, begin + lane, channels, space)
        taken += 1.0
        v -= pivot[None, :]
        off = tl.where(inside, v - mean, 0.0)
        mean += off * over(1.0, taken)
        square += off * tl.where(inside, v - mean, 0.0)
    share = over(1.0, channels * 1.0)
    each = (tl.maximum((channels - lane + ROWS - 1) // ROWS, 0) * 1.0)[:, None]
    middle = add_up(mean * (each * share), 0)
    off = mean - middle[None, :]
    var = add_up(square + each * (off * off), 0) * share
    return pivot, middle, over(1.0, root(var + eps))


@jit
def gains(weight, c, channels, otherwise):
    """A gain or a shift of channels."""
    if weight is None:
        return otherwise
    else:
        return tl.load(weight + c, mask=c < channels, other=0.0).to(tl.float32)[:, None]


@jit(do_not_specialize=["blocks"])
def forward(x, weight, bias, y, channels, space, blocks, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """y."""
    first, mask = vectors(channels, space, blocks, BLOCK)
    pivot, middle, r = measure(x, first, mask, channels, space, eps, ROWS, BLOCK)
    for begin in range(0, channels, ROWS):
        c = begin + tl.arange(0, ROWS)
        v, where, inside = load(x, first, mask, c, channels, space)
        n = ((v - pivot[None, :]) - middle[None, :]) * r[None, :]
        out = n * gains(weight, c, channels, 1.0) + gains(bias, c, channels, 0.0)
        tl.store(y + where, out.to(y.dtype.element_ty), mask=inside)


@jit(do_not_specialize=["blocks"])
def backward(
    x, grad, weight, dx, dgain, dbias, channels, space, blocks, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """dx, and the program's share in the gradients of gain and shift."""
    first, mask = vectors(channels, space, blocks, BLOCK)
    pivot, middle, r = measure(x, first, mask, channels, space, eps, ROWS, BLOCK)
    total = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    along = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    part = tl.program_id(0).to(tl.int64) * channels
    for begin in range(0, channels, ROWS):
        c = begin + tl.arange(0, ROWS)
        v, where, inside = load(x, first, mask, c, channels, space)
        g = tl.load(grad + where, mask=inside, other=0.0).to(tl.float32)
        n = tl.where(inside, ((v - pivot[None, :]) - middle[None, :]) * r[None, :], 0.0)
        h = tl.where(inside, g * gains(weight, c, channels, 1.0), 0.0)
        total += h
        along += h * n
        if dgain is not None:
            tl.store(dgain + part + c, add_up(g * n, 1), mask=c < channels)
        if dbias is not None:
            tl.store(dbias + part + c, add_up(g, 1), mask=c < channels)
    share = over(1.0, channels * 1.0)
    rest = add_up(total, 0) * share
    pull = add_up(along, 0) * share
    if dx is not None:
        for begin in range(0, channels, ROWS):
            c = begin + tl.arange(0, ROWS)
            v, where, inside = load(x, first, mask, c, channels, space)
            g = tl.load(grad + where, mask=inside, other=0.0).to(tl.float32)
            n = ((v - pivot[None, :]) - middle[None, :]) * r[None, :]
            d = (g * gains(weight, c, channels, 1.0) - n * pull[None, :] - rest[None, :]) * r[None, :]
            tl.store(dx + where, d.to(dx.dtype.element_ty), mask=inside)
