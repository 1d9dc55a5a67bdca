"""Norm and rotary turn of heads, as `kernels/cpu/rotate.h` has it: a row is a head, wherever it lies in memory.

    (a, b) -> (a cos - b sin, b cos + a sin)        of the pairs of a normalized row

Rows are counted along three axes, with strides of their own for each array. The two halves of a row are loaded apart,
so that a thread holds whole pairs. Without NORM the row is turned and nothing else.
"""

from __future__ import annotations

import triton.language as tl

from normkit.kernels.cuda.templates.language import add_up, jit, over
from normkit.kernels.cuda.templates.row import SQUARE, about_mean, keep, pull_of, recall, reciprocal


@jit
def start_of(row, second, third, step0, step1, step2):
    """Where a row begins, along three axes of which the last two have `second` and `third` entries."""
    return (row // third // second) * step0 + (row // third % second) * step1 + (row % third) * step2


@jit
def places(half, PAIRS: tl.constexpr, BLOCK: tl.constexpr):
    """The pairs of a row, and where the first and the second feature of each stand."""
    pair = tl.arange(0, BLOCK)
    if PAIRS:
        return pair, 2 * pair, 2 * pair + 1
    else:
        return pair, pair, pair + half


@jit
def load_angles(cos, sin, start, pair, inside):
    """Cosine and sine of each pair."""
    at = start[:, None] + pair[None, :]
    return tl.load(cos + at, mask=inside, other=0.0), tl.load(sin + at, mask=inside, other=0.0)


@jit
def load_pairs(array, start, first, other, inside):
    """The first and the second features of all pairs, in float32."""
    a = tl.load(array + start[:, None] + first[None, :], mask=inside, other=0.0).to(tl.float32)
    b = tl.load(array + start[:, None] + other[None, :], mask=inside, other=0.0).to(tl.float32)
    return a, b


@jit
def store_pairs(array, start, first, other, inside, a, b):
    """Their reverse, rounded."""
    tl.store(array + start[:, None] + first[None, :], a.to(array.dtype.element_ty), mask=inside)
    tl.store(array + start[:, None] + other[None, :], b.to(array.dtype.element_ty), mask=inside)


@jit
def parameters(numbers, first, other, here, fill, offset, SHARED: tl.constexpr):
    """Gains or shifts of both features of a pair; `fill` where they are absent."""
    if numbers is None:
        return fill, fill
    elif SHARED:
        one = tl.load(numbers).to(tl.float32) + offset
        return one, one
    else:
        a = tl.load(numbers + first, mask=here, other=0.0).to(tl.float32) + offset
        b = tl.load(numbers + other, mask=here, other=0.0).to(tl.float32) + offset
        return a[None, :], b[None, :]


@jit(do_not_specialize=["rows", "second", "third"])
def forward(
    x, weight, bias, cos, sin, y, stats, rows, second, third, s0, s1, s2, o0, o1, o2, a0, a1, a2,
    half, eps, offset, scale,
    NORM: tl.constexpr, PAIRS: tl.constexpr, CENTER: tl.constexpr, PLACE: tl.constexpr, EARLY: tl.constexpr,
    SHARED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y of ROWS rows."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    pair, first, other = places(half, PAIRS, BLOCK)
    present = row < rows
    inside = present[:, None] & (pair < half)[None, :]
    a, b = load_pairs(x, start_of(row, second, third, s0, s1, s2), first, other, inside)
    if NORM:
        share = over(1.0, half * 2.0)
        mean = add_up(a, 1) * 0.0
        left = mean
        if CENTER:
            mean = add_up(a * share + b * share, 1)
            a = tl.where(inside, a - mean[:, None], 0.0)
            b = tl.where(inside, b - mean[:, None], 0.0)
            left, raw = about_mean(add_up(a + b, 1), add_up(a * a + b * b, 1), share)
            a -= left[:, None]
            b -= left[:, None]
        else:
            raw = add_up(a * a + b * b, 1)
        r = reciprocal(raw, share, eps, 1.0, SQUARE, PLACE)
        keep(stats, row, present, raw, r, mean, left, SQUARE, CENTER, PLACE)
        a *= r[:, None]
        b *= r[:, None]
        if EARLY:
            a = a.to(y.dtype.element_ty).to(tl.float32)
            b = b.to(y.dtype.element_ty).to(tl.float32)
        gain_a, gain_b = parameters(weight, first, other, pair < half, scale, offset, SHARED)
        shift_a, shift_b = parameters(bias, first, other, pair < half, 0.0, 0.0, False)
        a = a * gain_a + shift_a
        b = b * gain_b + shift_b
    c, s = load_angles(cos, sin, start_of(row, second, third, a0, a1, a2), pair, inside)
    to = start_of(row, second, third, o0, o1, o2)
    store_pairs(y, to, first, other, inside, a * c - b * s, b * c + a * s)


@jit(do_not_specialize=["rows", "chunk", "second", "third"])
def backward(
    x, grad, weight, cos, sin, stats, dx, dgain, dbias, rows, second, third, chunk,
    s0, s1, s2, g0, g1, g2, o0, o1, o2, a0, a1, a2, half, eps, offset, scale,
    PAIRS: tl.constexpr, CENTER: tl.constexpr, PLACE: tl.constexpr, SHARED: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of `chunk` rows, a multiple of ROWS, and the program's share in the gradients of gain and bias."""
    program = tl.program_id(0).to(tl.int64)
    pair, first, other = places(half, PAIRS, BLOCK)
    dim = 2 * half
    share = over(1.0, half * 2.0)
    gain_a, gain_b = parameters(weight, first, other, pair < half, scale, offset, SHARED)
    gains_a = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    gains_b = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    shifts_a = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    shifts_b = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    for begin in range(0, chunk, ROWS):
        row = program * chunk + begin + tl.arange(0, ROWS)
        present = row < rows
        inside = present[:, None] & (pair < half)[None, :]
        raw, r, mean, left = recall(stats, row, present, share, eps, 1.0, SQUARE, CENTER, PLACE)
        a, b = load_pairs(x, start_of(row, second, third, s0, s1, s2), first, other, inside)
        if CENTER:
            a = (a - mean[:, None]) - left[:, None]
            b = (b - mean[:, None]) - left[:, None]
        a = tl.where(inside, a * r[:, None], 0.0)
        b = tl.where(inside, b * r[:, None], 0.0)
        ga, gb = load_pairs(grad, start_of(row, second, third, g0, g1, g2), first, other, inside)
        c, s = load_angles(cos, sin, start_of(row, second, third, a0, a1, a2), pair, inside)
        ha = ga * c + gb * s
        hb = gb * c - ga * s
        if dgain is not None:
            gains_a += tl.where(inside, ha * a, 0.0)
            gains_b += tl.where(inside, hb * b, 0.0)
        if dbias is not None:
            shifts_a += ha
            shifts_b += hb
        ha *= gain_a
        hb *= gain_b
        along = add_up(ha * a + hb * b, 1)
        pull = pull_of(raw, r, along, along, share, eps, 1.0, SQUARE, PLACE)
        da = ha - pull[:, None] * a
        db = hb - pull[:, None] * b
        if CENTER:
            shift = add_up(ha + hb, 1) * share
            da -= shift[:, None]
            db -= shift[:, None]
        to = start_of(row, second, third, o0, o1, o2)
        store_pairs(dx, to, first, other, inside, da * r[:, None], db * r[:, None])
    if dgain is not None:
        if SHARED:
            tl.store(dgain + program, add_up(add_up(gains_a + gains_b, 1), 0))
        else:
            tl.store(dgain + program * dim + first, add_up(gains_a, 0), mask=pair < half)
            tl.store(dgain + program * dim + other, add_up(gains_b, 0), mask=pair < half)
    if dbias is not None:
        tl.store(dbias + program * dim + first, add_up(shifts_a, 0), mask=pair < half)
        tl.store(dbias + program * dim + other, add_up(shifts_b, 0), mask=pair < half)
