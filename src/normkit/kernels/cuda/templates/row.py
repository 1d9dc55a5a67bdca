"""The row template: everything that is worked out within one row, as `kernels/cpu/row.h` has it.

    z = x - mean (or x),  n = z * r,  y = n * gain + bias,     r by the statistic and the place of its eps
    dx = r * (h - pull * t - shift),                           h = g * gain,  t = how each entry moves the statistic

with pull = dot(h, n) / (how much of r the statistic makes), shift = the mean of the rest (only when centered). All is
in units of n, so that rows of 1e-20 or 6e4 are as safe as rows of 1. A mean is kept in two parts, of which the second
is what the rounding of the first has left, so that an offset costs no digits. Arithmetic is float32. `share` is one
over the entries of a row, `portion` one over those that the statistic counts.

`forward` and `backward` hold ROWS rows of at most BLOCK entries in registers. `forward_long`, `backward_long` and
`gains_long` walk along a row, BLOCK entries at a time. WIDTH is `dim` where a kernel is compiled for one width alone,
else 0. Gains and shifts get one partial sum a program.
"""

from __future__ import annotations

import triton.language as tl

from normkit.kernels.cuda.templates.language import add_up, add_up_both, for_all, jit, largest, over, over_root, root

SQUARE = tl.constexpr(0)
ABSOLUTE = tl.constexpr(1)
MAXIMUM = tl.constexpr(2)
ZERO_SUM = tl.constexpr(3)
INSIDE = tl.constexpr(0)
OUTSIDE = tl.constexpr(1)
MOST = tl.constexpr(3.4028234663852886e38)


@jit
def reciprocal(raw, portion, eps, constant, STATISTIC: tl.constexpr, PLACE: tl.constexpr):
    """r, from the raw statistic, of which an entry's portion is one over how many are counted; eps None is 0."""
    if STATISTIC == ZERO_SUM or (STATISTIC == SQUARE and PLACE == INSIDE):
        return over_root(raw * portion) if eps is None else tl.rsqrt(raw * portion + eps)
    eps = 0.0 if eps is None else eps
    if STATISTIC == ABSOLUTE:
        return over(1.0, constant * (raw * portion) + eps)
    if STATISTIC == MAXIMUM:
        return over(1.0, raw + eps)
    if PLACE == OUTSIDE:
        return over(1.0, root(raw * portion) + eps)
    length = root(raw)
    return over(1.0, tl.where(length < eps, eps, length))


@jit
def pull_of(raw, r, along, ties, portion, eps, constant, STATISTIC: tl.constexpr, PLACE: tl.constexpr):
    """The factor of t in dx / r; zero where the statistic does not move r."""
    if STATISTIC == ABSOLUTE:
        return along * constant * portion
    if STATISTIC == MAXIMUM:
        return tl.where(ties > 0, over(along, tl.where(ties > 0, ties, 1.0)), 0 * along)
    if (STATISTIC == ZERO_SUM) or (PLACE == INSIDE):
        return along * portion
    eps = 0.0 if eps is None else eps
    length = root(raw)
    still = raw == 0
    infinite = length == float("inf")
    safe = r * tl.where(still | infinite, 1.0, length)
    if PLACE == OUTSIDE:
        pull = over(along * root(portion), safe)
    else:
        pull = tl.where(length < eps, 0.0, over(along, safe))
    pull = tl.where(infinite, 0 * along, pull)
    return tl.where(still, 0.0, pull)


@jit
def about_mean(total, square, share):
    """From sums about a pivot: what the pivot leaves of the mean, and the sum of squares about the mean."""
    left = total * share
    less = left * total
    squares = square - tl.where(less > MOST, MOST, less)
    return left, tl.where(squares < 0, 0.0, squares)


@jit
def direction(z, n, r, total, raw, STATISTIC: tl.constexpr):
    """t, how an entry moves the statistic."""
    if STATISTIC == SQUARE:
        return n
    if STATISTIC == ZERO_SUM:
        return (z + total) * r
    sign = tl.where(z > 0, 1.0, 0.0) - tl.where(z < 0, 1.0, 0.0)
    if STATISTIC == MAXIMUM:
        return tl.where(tl.abs(z) >= raw, sign, 0.0)
    return sign


@jit
def those(at, dim, FULL: tl.constexpr):
    """Which entries of a row there are: all where blocks are FULL, and what is always true the compiler takes out."""
    if FULL:
        return tl.full(at.shape, 1, tl.int1)
    else:
        return at < dim


@jit
def within(row, rows, at, dim, FULL: tl.constexpr, ROWS: tl.constexpr):
    """Which rows there are, and which of their entries. Of rows that come one at a time there is each."""
    if ROWS == 1:
        present = tl.full([1], 1, tl.int1)
    else:
        present = row < rows
    return present, present[:, None] & those(at, dim, FULL)[None, :]


@jit
def gain_of(weight, at, dim, offset, scale, SHARED: tl.constexpr, ROWS: tl.constexpr, FULL: tl.constexpr):
    """The gain of the entries `at`, a tile of it, or one number."""
    if weight is None:
        return scale
    else:
        if SHARED:
            gain = tl.load(weight).to(tl.float32)
        else:
            gain = for_all(weight, at, dim, ROWS, FULL)
        return gain if offset is None else gain + offset


@jit
def add(x, residual, where, inside):
    """The entries of a row in float32, the residual added and the sum rounded as it is stored."""
    v = tl.load(x + where, mask=inside, other=0.0)
    if residual is not None:
        more = tl.load(residual + where, mask=inside, other=0.0)
        v = (v.to(tl.float32) + more.to(tl.float32)).to(x.dtype.element_ty)
    return v


@jit
def keep(stats, row, present, raw, r, mean, left, STATISTIC: tl.constexpr, CENTER: tl.constexpr, PLACE: tl.constexpr):
    """Store what the backward pass needs of a row: of the statistic r alone where that will do."""
    if stats is not None:
        each: tl.constexpr = 3 if CENTER else 2 if STATISTIC == ZERO_SUM else 1
        at = stats + row * each
        if STATISTIC == ZERO_SUM or (STATISTIC == SQUARE and PLACE == INSIDE):
            tl.store(at, r, mask=present)
        else:
            tl.store(at, raw, mask=present)
        if each > 1:
            tl.store(at + 1, mean, mask=present)
        if each > 2:
            tl.store(at + 2, left, mask=present)


@jit
def recall(
    stats, row, present, portion, eps, constant,
    STATISTIC: tl.constexpr, CENTER: tl.constexpr, PLACE: tl.constexpr,
):  # fmt: skip
    """Load it: the raw statistic (or r in its place), r, the mean (or the sum) and what is left of it."""
    each: tl.constexpr = 3 if CENTER else 2 if STATISTIC == ZERO_SUM else 1
    at = stats + row * each
    raw = tl.load(at, mask=present, other=1.0)
    r = raw
    if not (STATISTIC == ZERO_SUM or (STATISTIC == SQUARE and PLACE == INSIDE)):
        r = reciprocal(raw, portion, eps, constant, STATISTIC, PLACE)
    mean = 0 * raw
    left = mean
    if each > 1:
        mean = tl.load(at + 1, mask=present, other=0.0)
    if each > 2:
        left = tl.load(at + 2, mask=present, other=0.0)
    return raw, r, mean, left


@jit
def center(v, mean, left, STATISTIC: tl.constexpr, CENTER: tl.constexpr):
    """z. Where squares are summed what is left of the mean stays in it: `scaled` takes it away."""
    if not CENTER:
        return v
    elif STATISTIC == SQUARE:
        return v - mean[:, None]
    else:
        return (v - mean[:, None]) - left[:, None]


@jit
def first_of(v, at, part, PART: tl.constexpr):
    """What is among the first `part` entries of a row; without PART these are all."""
    if PART:
        return tl.where((at < part)[None, :], v, 0.0)
    else:
        return v


@jit
def measure(v, inside, at, part, share, STATISTIC: tl.constexpr, CENTER: tl.constexpr, PART: tl.constexpr):
    """z of whole rows in registers, 0 outside; the mean in two parts (or the sum), and the raw statistic."""
    mean = add_up(v, 1) * 0.0
    left = mean
    if CENTER:
        mean = add_up(v * share, 1)
        z = tl.where(inside, v - mean[:, None], 0.0)
        total, squares = add_up_both(z, z * z, 1)
        left, raw = about_mean(total, squares, share)
        if STATISTIC != SQUARE:
            z = tl.where(inside, z - left[:, None], 0.0)
    else:
        z = v
        raw = add_up(first_of(z * z, at, part, PART), 1)
    if STATISTIC == ABSOLUTE:
        raw = add_up(tl.abs(z), 1)
    elif STATISTIC == MAXIMUM:
        raw = largest(tl.abs(z), 1)
    elif STATISTIC == ZERO_SUM:
        mean = add_up(z, 1)
        raw += mean * mean
    return z, mean, left, raw


@jit
def scaled(z, left, r, STATISTIC: tl.constexpr, CENTER: tl.constexpr):
    """n. What is left of the mean goes in the operation that scales."""
    if CENTER and (STATISTIC == SQUARE):
        return z * r[:, None] - (left * r)[:, None]
    else:
        return z * r[:, None]


@jit
def finish(n, gain, bias, at, dim, kind: tl.constexpr, EARLY: tl.constexpr, ROWS: tl.constexpr, FULL: tl.constexpr):
    """y of the normalized entries, before it is rounded."""
    if EARLY:
        n = n.to(kind).to(tl.float32)
    y = n * gain
    if bias is not None:
        y += for_all(bias, at, dim, ROWS, FULL)
    return y


@jit(do_not_specialize=["rows", "part"])
def forward(
    x, residual, weight, bias, total, y, stats, rows, dim, part, share, portion, eps, constant, offset, scale,
    STATISTIC: tl.constexpr, CENTER: tl.constexpr, PLACE: tl.constexpr, EARLY: tl.constexpr, SHARED: tl.constexpr,
    PART: tl.constexpr, FULL: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y (and total) of ROWS rows."""
    if WIDTH:
        dim = WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = tl.arange(0, BLOCK)
    present, inside = within(row, rows, at, dim, FULL, ROWS)
    where = row[:, None] * dim + at[None, :]
    v = add(x, residual, where, inside)
    if total is not None:
        tl.store(total + where, v, mask=inside)
    z, mean, left, raw = measure(v.to(tl.float32), inside, at, part, share, STATISTIC, CENTER, PART)
    r = reciprocal(raw, portion, eps, constant, STATISTIC, PLACE)
    n = scaled(z, left, r, STATISTIC, CENTER)
    gain = gain_of(weight, at, dim, offset, scale, SHARED, ROWS, FULL)
    out = finish(n, gain, bias, at, dim, y.dtype.element_ty, EARLY, ROWS, FULL)
    tl.store(y + where, out.to(y.dtype.element_ty), mask=inside)
    keep(stats, row, present, raw, r, mean, left, STATISTIC, CENTER, PLACE)


@jit
def summed(h, n, t, STATISTIC: tl.constexpr, CENTER: tl.constexpr):
    """What a row's gradient needs: the sums of h * n, of h, of t, and how many entries tie for the maximum."""
    along = add_up(h * n, 1)
    level = along * 0.0
    turn = level
    ties = level
    if CENTER:
        level = add_up(h, 1)
    if (STATISTIC == ABSOLUTE) or (STATISTIC == MAXIMUM):  # noqa: SIM109  Triton has no `in`
        turn = add_up(t, 1)
        ties = add_up(tl.abs(t), 1)
    return along, level, turn, ties


@jit
def flowed(h, t, r, pull, shift, at, part, STATISTIC: tl.constexpr, CENTER: tl.constexpr, PART: tl.constexpr):
    """dx, before anything is added to it."""
    if CENTER:  # two operations an entry
        return h * r[:, None] - ((pull * r)[:, None] * t + (shift * r)[:, None])
    moved = pull[:, None] * t
    if STATISTIC == SQUARE:
        moved = first_of(moved, at, part, PART)
    return (h - moved) * r[:, None]


@jit
def take(x, grad, where, inside, mean, left, r, STATISTIC: tl.constexpr, CENTER: tl.constexpr):
    """z, n and g of some entries of rows. Outside g is 0, and z where its size or its sign counts."""
    z = center(tl.load(x + where, mask=inside, other=0.0).to(tl.float32), mean, left, STATISTIC, CENTER)
    if CENTER and (STATISTIC != SQUARE):
        z = tl.where(inside, z, 0.0)
    return z, scaled(z, left, r, STATISTIC, CENTER), tl.load(grad + where, mask=inside, other=0.0).to(tl.float32)


@jit(do_not_specialize=["rows", "part", "chunk"])
def backward(
    x, grad, more, weight, stats, dx, dgain, dbias, rows, chunk, dim, part, share, portion,
    eps, constant, offset, scale,
    STATISTIC: tl.constexpr, CENTER: tl.constexpr, PLACE: tl.constexpr, SHARED: tl.constexpr,
    PART: tl.constexpr, FULL: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of `chunk` rows, a multiple of ROWS, and the program's share in the gradients of gain and bias."""
    if WIDTH:
        dim = WIDTH
    program = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    gain = gain_of(weight, at, dim, offset, scale, SHARED, ROWS, FULL)
    gains = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    shifts = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    for first in range(0, tl.minimum(chunk, rows - program * chunk).to(tl.int32), ROWS):
        row = program * chunk + first + tl.arange(0, ROWS)
        present, inside = within(row, rows, at, dim, FULL, ROWS)
        where = row[:, None] * dim + at[None, :]
        raw, r, mean, left = recall(stats, row, present, portion, eps, constant, STATISTIC, CENTER, PLACE)
        z, n, g = take(x, grad, where, inside, mean, left, r, STATISTIC, CENTER)
        if dgain is not None:
            gains += g * n
        if dbias is not None:
            shifts += g
        h = g * gain
        t = direction(z, n, r[:, None], mean[:, None], raw[:, None], STATISTIC)
        along, level, turn, ties = summed(h, n, t, STATISTIC, CENTER)
        pull = pull_of(raw, r, along, ties, portion, eps, constant, STATISTIC, PLACE)
        shift = (level - pull * turn) * share
        d = flowed(h, t, r, pull, shift, at, part, STATISTIC, CENTER, PART)
        if more is not None:
            d += tl.load(more + where, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx + where, d.to(dx.dtype.element_ty), mask=inside)
    if dgain is not None:
        if SHARED:
            tl.store(dgain + program, add_up(add_up(gains, 1), 0))
        else:
            tl.store(dgain + program * dim + at, add_up(gains, 0), mask=those(at, dim, FULL))
    if dbias is not None:
        tl.store(dbias + program * dim + at, add_up(shifts, 0), mask=those(at, dim, FULL))


@jit(do_not_specialize=["part"])
def forward_long(
    x, residual, weight, bias, total, y, stats, rows, dim, part, share, portion, eps, constant, offset, scale,
    STATISTIC: tl.constexpr, CENTER: tl.constexpr, PLACE: tl.constexpr, EARLY: tl.constexpr, SHARED: tl.constexpr,
    PART: tl.constexpr, FULL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y (and total) of one row, which is read three times at most, from the cache but for the first."""
    row = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    each = tl.arange(0, BLOCK)
    first = tl.full([1, BLOCK], 0.0, tl.float32)
    second = tl.full([1, BLOCK], 0.0, tl.float32)
    for start in range(0, dim, BLOCK):
        at = start + each
        where = row[:, None] * dim + at[None, :]
        inside = those(at, dim, FULL)[None, :]
        v = add(x, residual, where, inside)
        if total is not None:
            tl.store(total + where, v, mask=inside)
        z = v.to(tl.float32)
        if CENTER:
            first += z * share
        elif STATISTIC == ABSOLUTE:
            first += tl.abs(z)
        elif STATISTIC == MAXIMUM:
            first = tl.where((tl.abs(z) > first) | (z != z), tl.abs(z), first)
        else:
            first += first_of(z * z, at, part, PART)
            second += z
    mean = add_up(first, 1) * 0.0
    left = mean
    if CENTER:
        mean = add_up(first, 1)
        first = tl.full([1, BLOCK], 0.0, tl.float32)
        for start in range(0, dim, BLOCK):
            at = start + each
            inside = those(at, dim, FULL)[None, :]
            v = add(x, residual, row[:, None] * dim + at[None, :], inside).to(tl.float32)
            z = tl.where(inside, v - mean[:, None], 0.0)
            first += z * z
            second += z
        left, raw = about_mean(add_up(second, 1), add_up(first, 1), share)
        if (STATISTIC == ABSOLUTE) or (STATISTIC == MAXIMUM):  # noqa: SIM109  Triton has no `in`
            first = tl.full([1, BLOCK], 0.0, tl.float32)
            for start in range(0, dim, BLOCK):
                at = start + each
                inside = those(at, dim, FULL)[None, :]
                v = add(x, residual, row[:, None] * dim + at[None, :], inside).to(tl.float32)
                z = tl.abs(tl.where(inside, center(v, mean, left, STATISTIC, CENTER), 0.0))
                if STATISTIC == ABSOLUTE:
                    first += z
                else:
                    first = tl.where((z > first) | (z != z), z, first)
    if STATISTIC == ABSOLUTE:
        raw = add_up(first, 1)
    elif STATISTIC == MAXIMUM:
        raw = largest(first, 1)
    elif STATISTIC == ZERO_SUM:
        mean = add_up(second, 1)
        raw = add_up(first, 1) + mean * mean
    elif not CENTER:
        raw = add_up(first, 1)
    r = reciprocal(raw, portion, eps, constant, STATISTIC, PLACE)
    keep(stats, row, row < rows, raw, r, mean, left, STATISTIC, CENTER, PLACE)
    for start in range(0, dim, BLOCK):
        at = start + each
        where = row[:, None] * dim + at[None, :]
        inside = those(at, dim, FULL)[None, :]
        v = add(x, residual, where, inside).to(tl.float32)
        n = scaled(center(v, mean, left, STATISTIC, CENTER), left, r, STATISTIC, CENTER)
        gain = gain_of(weight, at, dim, offset, scale, SHARED, 1, FULL)
        out = finish(n, gain, bias, at, dim, y.dtype.element_ty, EARLY, 1, FULL)
        tl.store(y + where, out.to(y.dtype.element_ty), mask=inside)


@jit(do_not_specialize=["part"])
def backward_long(
    x, grad, more, weight, stats, dx, dim, part, share, portion, eps, constant, offset, scale,
    STATISTIC: tl.constexpr, CENTER: tl.constexpr, PLACE: tl.constexpr, SHARED: tl.constexpr,
    PART: tl.constexpr, FULL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of one row, in two passes."""
    row = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    each = tl.arange(0, BLOCK)
    raw, r, mean, left = recall(stats, row, row >= 0, portion, eps, constant, STATISTIC, CENTER, PLACE)
    along = tl.full([1, BLOCK], 0.0, tl.float32)
    level = tl.full([1, BLOCK], 0.0, tl.float32)
    turn = tl.full([1, BLOCK], 0.0, tl.float32)
    ties = tl.full([1, BLOCK], 0.0, tl.float32)
    for start in range(0, dim, BLOCK):
        at = start + each
        inside = those(at, dim, FULL)[None, :]
        z, n, g = take(x, grad, row[:, None] * dim + at[None, :], inside, mean, left, r, STATISTIC, CENTER)
        h = g * gain_of(weight, at, dim, offset, scale, SHARED, 1, FULL)
        along += h * n
        if CENTER:
            level += h
        if (STATISTIC == ABSOLUTE) or (STATISTIC == MAXIMUM):  # noqa: SIM109  Triton has no `in`
            t = direction(z, n, r[:, None], mean[:, None], raw[:, None], STATISTIC)
            turn += t
            ties += tl.abs(t)
    pull = pull_of(raw, r, add_up(along, 1), add_up(ties, 1), portion, eps, constant, STATISTIC, PLACE)
    shift = (add_up(level, 1) - pull * add_up(turn, 1)) * share
    for start in range(0, dim, BLOCK):
        at = start + each
        where = row[:, None] * dim + at[None, :]
        inside = those(at, dim, FULL)[None, :]
        z, n, g = take(x, grad, where, inside, mean, left, r, STATISTIC, CENTER)
        h = g * gain_of(weight, at, dim, offset, scale, SHARED, 1, FULL)
        t = direction(z, n, r[:, None], mean[:, None], raw[:, None], STATISTIC)
        d = flowed(h, t, r, pull, shift, at, part, STATISTIC, CENTER, PART)
        if more is not None:
            d += tl.load(more + where, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx + where, d.to(dx.dtype.element_ty), mask=inside)


@jit(do_not_specialize=["rows", "part", "chunk"])
def gains_long(
    x, grad, stats, dgain, dbias, rows, dim, part, chunk, portion, eps, constant,
    STATISTIC: tl.constexpr, CENTER: tl.constexpr, PLACE: tl.constexpr, SHARED: tl.constexpr,
    PART: tl.constexpr, FULL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program's share in the gradients of gain and bias: BLOCK columns of `chunk` rows."""
    column = tl.program_id(0)
    program = tl.program_id(1).to(tl.int64)
    at = column * BLOCK + tl.arange(0, BLOCK)
    gains = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    shifts = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    for first in range(0, tl.minimum(chunk, rows - program * chunk).to(tl.int32), ROWS):
        row = program * chunk + first + tl.arange(0, ROWS)
        present, inside = within(row, rows, at, dim, FULL, ROWS)
        _, r, mean, left = recall(stats, row, present, portion, eps, constant, STATISTIC, CENTER, PLACE)
        _, n, g = take(x, grad, row[:, None] * dim + at[None, :], inside, mean, left, r, STATISTIC, CENTER)
        gains += g * n
        shifts += g
    if dgain is not None:
        if SHARED:
            tl.store(dgain + program * tl.num_programs(0) + column, add_up(add_up(gains, 1), 0))
        else:
            tl.store(dgain + program * dim + at, add_up(gains, 0), mask=those(at, dim, FULL))
    if dbias is not None:
        tl.store(dbias + program * dim + at, add_up(shifts, 0), mask=those(at, dim, FULL))
