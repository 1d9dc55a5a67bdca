"""The channel template: statistics over samples or space of (N, C, *space), as `kernels/cpu/channel.h` has it.

    y = n * weight + bias                               AFFINE       n = (x - mean) * r,   r = 1 / sqrt(var + eps)
    y = max(n * weight + bias, extra)                   THRESHOLD
    y = x * sigmoid(extra * x) * r * weight + bias      SWISH
    y = clamp(n * weight + bias, -extra, extra)         CLAMP
    dx = r * (g' * weight - n * pull - rest)            g' = the gradient behind the activation

A unit is what shares a statistic: a channel of all samples (OVER), or a group of channels of one. It may be more than
one program holds, so there are two stages: programs `measure` pieces of it, about a pivot, and `join` adds up what they
found in float64; then `write` reads x once more. Backward, `reduce` takes sums, which `pulls` and `parameters` join.
Arithmetic on entries is float32. With SHARE n is x / length, and the gain is weight * length / level + 1; the level,
which is the mean length, is kept in the place of the mean.

Channels first, a tile is ROWS planes by BLOCK positions, and a program takes `steps` of these along its planes. With
LAST it is ROWS positions by BLOCK channels, and the steps go down the rows. What a program adds up, it does per sample,
channel and piece: a cell.
"""

from __future__ import annotations

import triton.language as tl

from normkit.kernels.cuda.templates.language import add_up, jit, over, root
from normkit.kernels.cuda.templates.maths import at_most, exp_within

GIVEN = tl.constexpr(0)
DEVIATION = tl.constexpr(1)
RESPONSE = tl.constexpr(2)
SHARE = tl.constexpr(3)
ONLINE = tl.constexpr(5)
AFFINE = tl.constexpr(0)
THRESHOLD = tl.constexpr(1)
SWISH = tl.constexpr(2)
CLAMP = tl.constexpr(3)


@jit
def sigmoid(x):
    """1 / (1 + e^-x)."""
    e = exp_within(-at_most(tl.abs(x), 87.0))
    return over(tl.where(x < 0, e, 1.0), 1.0 + e)


@jit
def finite(value):
    """The number, 0 where it is none."""
    return tl.where(value - value == 0, value, 0.0)


@jit
def lanes(samples, channels, pieces, LAST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sample, channel and piece of the cells that a program adds up, and which of these are there."""
    if LAST:
        first = tl.program_id(0).to(tl.int64)
        c = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        return first // pieces, c, first % pieces, c < channels
    else:
        line = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        return line // channels, line % channels, tl.program_id(1).to(tl.int64), line // channels < samples


@jit
def cell_of(n, c, piece, channels, pieces, LAST: tl.constexpr):
    """The place of a cell among the sums."""
    if LAST:
        return (n * pieces + piece) * channels + c
    else:
        return (n * channels + c) * pieces + piece


@jit
def spread(v, LAST: tl.constexpr):
    """Numbers of cells, as they broadcast with a tile."""
    if LAST:
        return v[None, :]
    else:
        return v[:, None]


@jit
def tile(n, c, mask, begin, channels, space, LAST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Where the entries of a tile lie, which begins at a position, and which of them are there."""
    if LAST:
        row = begin + tl.arange(0, ROWS)
        where = (n * space + row)[:, None] * channels + c[None, :]
        return where, (row < space)[:, None] & mask[None, :]
    else:
        at = begin + tl.arange(0, BLOCK)
        line = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        return line[:, None] * space + at[None, :], mask[:, None] & (at < space)[None, :]


@jit
def unit_of(n, c, groups, group, OVER: tl.constexpr):
    """The unit of a channel of a sample."""
    if OVER:
        return c
    else:
        return n * groups + c // group


@jit
def moments_of(moments, unit, units, mask, eps, learned, STATISTIC: tl.constexpr):
    """The mean in two parts, r, and the share of a length (SHARE)."""
    at = tl.load(moments + unit, mask=mask, other=0.0)
    var = tl.load(moments + units + unit, mask=mask, other=1.0)
    if STATISTIC == SHARE:
        r = tl.where(var == 0, 0.0, 1.0 / tl.where(var == 0, 1.0, var)).to(tl.float32)
        return 0.0 * r, 0.0 * r, r, (var / at).to(tl.float32)
    else:
        if learned is not None:
            eps = tl.load(learned).to(tl.float32)
        spread_of = var.to(tl.float32)
        r = over(1.0, root(spread_of + eps))
        mean = at.to(tl.float32)
        return mean, finite((at - mean.to(tl.float64)).to(tl.float32)), r, 0.0 * r


@jit
def spread_moments(moments, unit, units, mask, eps, learned, STATISTIC: tl.constexpr, LAST: tl.constexpr):
    """The same, as they broadcast with a tile."""
    mean, left, r, share = moments_of(moments, unit, units, mask, eps, learned, STATISTIC)
    return spread(mean, LAST), spread(left, LAST), spread(r, LAST), spread(share, LAST)


@jit
def parameter(numbers, c, mask, otherwise):
    """A gain, a shift or an extra of channels."""
    if numbers is None:
        return tl.where(mask, otherwise, 0.0)
    else:
        return tl.load(numbers + c, mask=mask, other=0.0).to(tl.float32)


@jit
def affine_of(weight, bias, extra, c, mask, LAST: tl.constexpr):
    """Gains, shifts and extras of channels, as they broadcast with a tile."""
    w = parameter(weight, c, mask, 1.0)
    b = parameter(bias, c, mask, 0.0)
    return spread(w, LAST), spread(b, LAST), spread(parameter(extra, c, mask, 1.0), LAST)


@jit
def normal(v, mean, left, r, STATISTIC: tl.constexpr):
    """n."""
    if (STATISTIC == RESPONSE) or (STATISTIC == SHARE):  # noqa: SIM109  Triton has no `in`
        return v * r
    else:
        return ((v - mean) - left) * r


@jit
def behind(g, z, e, ACTIVATION: tl.constexpr):
    """The gradient that passes an activation: half of it where z ties with a threshold, all where with a limit."""
    if ACTIVATION == AFFINE:
        return g
    elif ACTIVATION == THRESHOLD:
        return tl.where(z < e, 0.0, tl.where(z == e, g * 0.5, g))
    else:
        return tl.where(tl.abs(z) <= e, g, 0.0)


@jit
def activated(z, e, ACTIVATION: tl.constexpr):
    """z behind its activation; SWISH is in z."""
    if ACTIVATION == THRESHOLD:
        return tl.where((z >= e) | (z != z), z, e)
    elif ACTIVATION == CLAMP:
        below = tl.where(z > e, e, z)
        return tl.where(below < -e, -e, below)
    else:
        return z


@jit
def at_threshold(g, z, e):
    """The gradient of a threshold: half of it where z ties with it; NaN passes to both, as torch.maximum has it."""
    return tl.where(z > e, 0.0, tl.where(z == e, g * 0.5, g))


@jit
def join_lanes(mean, square, count, LAST: tl.constexpr, STEP: tl.constexpr):
    """The mean of the lanes' means by how many entries each has seen, and the squares about it."""
    lane = tl.arange(0, STEP)
    each = spread(tl.maximum((count - lane + STEP - 1) // STEP, 0) * 1.0, not LAST)
    middle = add_up(mean * (each * over(1.0, count * 1.0)), 0 if LAST else 1)
    off = tl.where(each > 0, mean - spread(middle, LAST), 0.0)
    square += each * (off * off)
    return middle, square


@jit(do_not_specialize=["samples", "steps", "pieces"])
def measure(
    x, found, samples, channels, space, steps, pieces, cells,
    CENTER: tl.constexpr, SINGLE: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Mean and sum of squares about it (or about 0) of each cell; SINGLE: of a value whose square may be too large."""
    n, c, piece, mask = lanes(samples, channels, pieces, LAST, ROWS, BLOCK)
    STEP: tl.constexpr = ROWS if LAST else BLOCK
    AXIS: tl.constexpr = 0 if LAST else 1
    begin = piece * steps * STEP
    count = tl.minimum(space - begin, steps * STEP)
    where, inside = tile(n, c, mask, begin, channels, space, LAST, ROWS, BLOCK)
    v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    if CENTER:
        few = tl.minimum(count, STEP) * 1.0
        pivot = add_up(v * over(1.0, few), AXIS)
        mean = tl.where(inside, v - spread(pivot, LAST), 0.0)
        square = 0.0 * tl.where(inside, 0.0, v)
    else:
        pivot = add_up(tl.abs(v), AXIS)
        mean = 0.0 * tl.where(inside, 0.0, v)
        square = v * v
    taken = 1.0
    for step in range(STEP, count, STEP):
        where, inside = tile(n, c, mask, begin + step, channels, space, LAST, ROWS, BLOCK)
        v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
        if CENTER:
            taken += 1.0
            v -= spread(pivot, LAST)
            off = tl.where(inside, v - mean, 0.0)
            mean += off * over(1.0, taken)
            square += off * tl.where(inside, v - mean, 0.0)
        else:
            square += v * v
    cell = cell_of(n, c, piece, channels, pieces, LAST)
    if CENTER:
        middle, square = join_lanes(mean, square, count, LAST, STEP)
        tl.store(found + cell, pivot.to(tl.float64) + middle.to(tl.float64), mask=mask)
    total = add_up(square, AXIS).to(tl.float64)
    if SINGLE:
        total = pivot.to(tl.float64) * pivot.to(tl.float64)
    tl.store(found + cells + cell, total, mask=mask)


@jit
def move(running, u, mask, value, rate):
    """Move a running estimate of each unit towards its value."""
    old = tl.load(running + u, mask=mask, other=0.0).to(tl.float64)
    tl.store(running + u, (old + (value - old) * rate).to(running.dtype.element_ty), mask=mask)


@jit(do_not_specialize=["units", "outer", "pieces", "steps"])
def join(
    found, moments, means, variances, rate, bessel, units, groups, outer, pieces, sample_step, group_step,
    outer_step, piece_step, space, steps, cells,
    CENTER: tl.constexpr, LENGTH: tl.constexpr, STEP: tl.constexpr, UNITS: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """Mean and variance of units, or with LENGTH the root of their squares; running means and variances move."""
    u = tl.program_id(0).to(tl.int64) * UNITS + tl.arange(0, UNITS)
    mask = u < units
    base = (u // groups) * sample_step + (u % groups) * group_step
    pivot = tl.full([UNITS], 0.0, tl.float64)
    if CENTER:
        pivot = tl.load(found + base, mask=mask, other=0.0)
    total = tl.full([UNITS], 0.0, tl.float64)
    square = tl.full([UNITS], 0.0, tl.float64)
    for begin in range(0, outer * pieces, MEMBERS):
        m = begin + tl.arange(0, MEMBERS).to(tl.int64)
        at = base[:, None] + ((m // pieces) * outer_step + (m % pieces) * piece_step)[None, :]
        inside = mask[:, None] & (m < outer * pieces)[None, :]
        more = tl.load(found + cells + at, mask=inside, other=0.0)
        if CENTER:
            count = tl.minimum(space - (m % pieces) * steps * STEP, steps * STEP).to(tl.float64)[None, :]
            off = tl.where(inside, tl.load(found + at, mask=inside, other=0.0) - pivot[:, None], 0.0)
            total += add_up(count * off, 1)
            more += count * off * off
        square += add_up(more, 1)
    values = outer.to(tl.float64) * space  # which may be more than 32 bits hold
    if LENGTH:
        tl.store(moments + units + u, tl.sqrt(square), mask=mask)
    else:
        square -= total * (total / values)
        square = tl.where(square < 0, 0.0, square)
        mean = pivot + total / values
        tl.store(moments + u, mean, mask=mask)
        tl.store(moments + units + u, square / values, mask=mask)
        if means is not None:
            move(means, u, mask, mean, rate)
            move(variances, u, mask, square / values * bessel, rate)


@jit
def level(moments, units, channels, eps, BLOCK: tl.constexpr):
    """The mean length of a sample's channels, plus eps, kept in the place of each channel's mean."""
    first = tl.program_id(0).to(tl.int64) * channels
    total = tl.full([BLOCK], 0.0, tl.float64)
    for begin in range(0, channels, BLOCK):
        c = begin + tl.arange(0, BLOCK)
        total += tl.load(moments + units + first + c, mask=c < channels, other=0.0)
    mean = add_up(total, 0) / channels + eps
    for begin in range(0, channels, BLOCK):
        c = begin + tl.arange(0, BLOCK)
        tl.store(moments + first + c, mean + 0.0 * c, mask=c < channels)


@jit(do_not_specialize=["samples", "steps", "pieces", "units"])
def write(
    x, weight, bias, extra, moments, learned, y, samples, channels, groups, group, space, steps, pieces, units, eps,
    STATISTIC: tl.constexpr, ACTIVATION: tl.constexpr, OVER: tl.constexpr,
    LAST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y, by moments that are known."""
    n, c, piece, mask = lanes(samples, channels, pieces, LAST, ROWS, BLOCK)
    STEP: tl.constexpr = ROWS if LAST else BLOCK
    begin = piece * steps * STEP
    unit = unit_of(n, c, groups, group, OVER)
    mean, left, r, share = spread_moments(moments, unit, units, mask, eps, learned, STATISTIC, LAST)
    w, b, e = affine_of(weight, bias, extra, c, mask, LAST)
    for step in range(0, tl.minimum(space - begin, steps * STEP), STEP):
        where, inside = tile(n, c, mask, begin + step, channels, space, LAST, ROWS, BLOCK)
        v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
        if ACTIVATION == SWISH:
            z = ((v * sigmoid(e * v)) * r) * w + b
        elif STATISTIC == SHARE:
            z = v * (w * share + 1.0) + b
        else:
            z = normal(v, mean, left, r, STATISTIC) * w + b
        tl.store(y + where, activated(z, e, ACTIVATION).to(y.dtype.element_ty), mask=inside)


@jit
def store_sums(sums, cell, cells, mask, first, second, third, extra, AXIS: tl.constexpr):
    """Add up what each cell has of three; the third is of an extra."""
    tl.store(sums + cell, add_up(first, AXIS), mask=mask)
    tl.store(sums + cells + cell, add_up(second, AXIS), mask=mask)
    if extra is not None:
        tl.store(sums + cells + cells + cell, add_up(third, AXIS), mask=mask)


@jit(do_not_specialize=["samples", "steps", "pieces", "units"])
def reduce(
    x, grad, weight, bias, extra, moments, learned, sums, samples, channels, groups, group, space, steps, pieces,
    units, cells, eps,
    STATISTIC: tl.constexpr, ACTIVATION: tl.constexpr, OVER: tl.constexpr,
    LAST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of each cell the sums of g', of g' times what the gain multiplies, and of the extra's derivative."""
    n, c, piece, mask = lanes(samples, channels, pieces, LAST, ROWS, BLOCK)
    STEP: tl.constexpr = ROWS if LAST else BLOCK
    AXIS: tl.constexpr = 0 if LAST else 1
    begin = piece * steps * STEP
    unit = unit_of(n, c, groups, group, OVER)
    mean, left, r, _ = spread_moments(moments, unit, units, mask, eps, learned, STATISTIC, LAST)
    w, b, e = affine_of(weight, bias, extra, c, mask, LAST)
    first = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    second = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    third = tl.full([ROWS, BLOCK], 0.0, tl.float32)
    for step in range(0, tl.minimum(space - begin, steps * STEP), STEP):
        where, inside = tile(n, c, mask, begin + step, channels, space, LAST, ROWS, BLOCK)
        v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grad + where, mask=inside, other=0.0).to(tl.float32)
        if ACTIVATION == SWISH:
            s = sigmoid(e * v)
            t = g * (v * r)
            first += g
            second += tl.where(inside, t * s, 0.0)
            if extra is not None:
                third += tl.where(inside, (t * (s * (1.0 - s))) * v, 0.0)  # in this order no large v overflows
        else:
            h = normal(v, mean, left, r, STATISTIC)
            z = h * w + b
            passed = behind(g, z, e, ACTIVATION)
            first += tl.where(inside, passed, 0.0)
            second += tl.where(inside, passed * h, 0.0)
            if ACTIVATION == THRESHOLD:
                third += tl.where(inside, at_threshold(g, z, e), 0.0)
    cell = cell_of(n, c, piece, channels, pieces, LAST)
    store_sums(sums, cell, cells, mask, first, second, third, extra, AXIS)


@jit
def put(to, at, mask, value):
    """A gradient in the type of its parameter, where it is wanted."""
    if to is not None:
        tl.store(to + at, value.to(tl.float32).to(to.dtype.element_ty), mask=mask)


@jit
def sums_of(sums, weight, at, c, inside, cells, ALONE: tl.constexpr):
    """Two sums of each cell, times the gains of their channels where a unit has several."""
    s0 = tl.load(sums + at, mask=inside, other=0.0).to(tl.float64)
    s1 = tl.load(sums + cells + at, mask=inside, other=0.0).to(tl.float64)
    if ALONE:
        return s0, s1
    else:
        w = parameter(weight, c, inside, 1.0).to(tl.float64)
        return tl.where(inside, s0 * w, 0.0), tl.where(inside, s1 * w, 0.0)


@jit(do_not_specialize=["units", "outer", "pieces"])
def pulls(
    sums, weight, moments, learned, pulled, parts, dweight, dbias, dextra,
    units, groups, group, outer, pieces, sample_step, group_step, outer_step, piece_step, cells, values, eps,
    STATISTIC: tl.constexpr, ACTIVATION: tl.constexpr, ALONE: tl.constexpr, EXTRA: tl.constexpr,
    UNITS: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """How the gradients of units pull at mean and spread; ALONE: a unit is all of a channel, with its gradients."""
    u = tl.program_id(0).to(tl.int64) * UNITS + tl.arange(0, UNITS)
    mask = u < units
    base = (u // groups) * sample_step + (u % groups) * group_step
    total = tl.full([UNITS], 0.0, tl.float64)
    along = tl.full([UNITS], 0.0, tl.float64)
    third = tl.full([UNITS], 0.0, tl.float64)
    for begin in range(0, outer * pieces, MEMBERS):
        m = begin + tl.arange(0, MEMBERS).to(tl.int64)
        at = base[:, None] + ((m // pieces) * outer_step + (m % pieces) * piece_step)[None, :]
        inside = mask[:, None] & (m < outer * pieces)[None, :]
        c = ((u % groups) * group)[:, None] + (m // pieces)[None, :]
        s0, s1 = sums_of(sums, weight, at, c, inside, cells, ALONE)
        total += add_up(s0, 1)
        along += add_up(s1, 1)
        if EXTRA:
            third += add_up(tl.load(sums + cells + cells + at, mask=inside, other=0.0).to(tl.float64), 1)
    if ALONE:
        w = parameter(weight, u, mask, 1.0).to(tl.float64)
        put(dbias, u, mask, total)
        put(dweight, u, mask, along)
        if ACTIVATION == SWISH:
            third *= w
        put(dextra, u, mask, third)
        total *= w
        along *= w
    if ((STATISTIC != DEVIATION) and (STATISTIC != ONLINE)) or (ACTIVATION == SWISH):
        total = tl.full([UNITS], 0.0, tl.float64)
    tl.store(pulled + u, along / values, mask=mask)
    tl.store(pulled + units + u, total / values, mask=mask)
    if parts is not None:
        _, _, r, _ = moments_of(moments, u, units, mask, eps, learned, STATISTIC)
        tl.store(parts + u, along * r.to(tl.float64) * r.to(tl.float64), mask=mask)


@jit
def share_pulls(sums, weight, moments, pulled, channels, pieces, outer_step, piece_step, sample_step, units, cells,
                BLOCK: tl.constexpr):  # fmt: skip
    """SHARE: each length also moves the mean length, which all channels of the sample are divided by."""
    n = tl.program_id(0).to(tl.int64)
    common = tl.full([BLOCK], 0.0, tl.float64)
    mean = tl.load(moments + n * channels)
    for begin in range(0, channels, BLOCK):
        c = begin + tl.arange(0, BLOCK).to(tl.int64)
        inside = c < channels
        length = tl.load(moments + units + n * channels + c, mask=inside, other=0.0)
        along = tl.full([BLOCK], 0.0, tl.float64)
        for piece in range(0, pieces):
            at = n * sample_step + c * outer_step + piece * piece_step
            along += tl.load(sums + cells + at, mask=inside, other=0.0).to(tl.float64)
        along = tl.where(inside, along * parameter(weight, c, inside, 1.0).to(tl.float64) * length, 0.0)
        common += along * length
        tl.store(pulled + n * channels + c, along, mask=inside)
    all_of_it = add_up(common, 0) / (mean * mean * channels)
    for begin in range(0, channels, BLOCK):
        c = begin + tl.arange(0, BLOCK).to(tl.int64)
        inside = c < channels
        along = tl.load(pulled + n * channels + c, mask=inside, other=0.0)
        tl.store(pulled + n * channels + c, all_of_it - along / mean, mask=inside)
        tl.store(pulled + units + n * channels + c, 0.0 * along, mask=inside)


@jit(do_not_specialize=["samples", "pieces"])
def parameters(
    sums, weight, moments, dweight, dbias, dextra, samples, channels, pieces, outer_step, piece_step, sample_step,
    units, cells,
    STATISTIC: tl.constexpr, ACTIVATION: tl.constexpr, UNITS: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """Gradients of the parameters of channels, from the sums of their samples."""
    c = tl.program_id(0).to(tl.int64) * UNITS + tl.arange(0, UNITS)
    mask = c < channels
    first = tl.full([UNITS], 0.0, tl.float64)
    second = tl.full([UNITS], 0.0, tl.float64)
    third = tl.full([UNITS], 0.0, tl.float64)
    for begin in range(0, samples * pieces, MEMBERS):
        m = begin + tl.arange(0, MEMBERS).to(tl.int64)
        n = m // pieces
        at = (c * outer_step)[:, None] + (n * sample_step + (m % pieces) * piece_step)[None, :]
        inside = mask[:, None] & (m < samples * pieces)[None, :]
        first += add_up(tl.load(sums + at, mask=inside, other=0.0).to(tl.float64), 1)
        more = tl.load(sums + cells + at, mask=inside, other=0.0).to(tl.float64)
        if STATISTIC == SHARE:
            unit = n[None, :] * channels + c[:, None]
            length = tl.load(moments + units + unit, mask=inside, other=0.0)
            more *= length * (length / tl.load(moments + unit, mask=inside, other=1.0))
        second += add_up(more, 1)
        if dextra is not None:
            third += add_up(tl.load(sums + cells + cells + at, mask=inside, other=0.0).to(tl.float64), 1)
    put(dbias, c, mask, first)
    put(dweight, c, mask, second)
    if ACTIVATION == SWISH:
        third *= parameter(weight, c, mask, 1.0).to(tl.float64)
    put(dextra, c, mask, third)


@jit(do_not_specialize=["samples", "steps", "pieces", "units"])
def write_back(
    x, grad, weight, bias, extra, moments, learned, pulled, dx, samples, channels, groups, group, space, steps, pieces,
    units, eps,
    STATISTIC: tl.constexpr, ACTIVATION: tl.constexpr, OVER: tl.constexpr,
    LAST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx, by moments and pulls that are known."""
    n, c, piece, mask = lanes(samples, channels, pieces, LAST, ROWS, BLOCK)
    STEP: tl.constexpr = ROWS if LAST else BLOCK
    begin = piece * steps * STEP
    unit = unit_of(n, c, groups, group, OVER)
    mean, left, r, share = spread_moments(moments, unit, units, mask, eps, learned, STATISTIC, LAST)
    w, b, e = affine_of(weight, bias, extra, c, mask, LAST)
    if STATISTIC != GIVEN:
        pull = spread(tl.load(pulled + unit, mask=mask, other=0.0).to(tl.float32), LAST)
        rest = spread(tl.load(pulled + units + unit, mask=mask, other=0.0).to(tl.float32), LAST)
    for step in range(0, tl.minimum(space - begin, steps * STEP), STEP):
        where, inside = tile(n, c, mask, begin + step, channels, space, LAST, ROWS, BLOCK)
        v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grad + where, mask=inside, other=0.0).to(tl.float32)
        h = normal(v, mean, left, r, STATISTIC)
        if ACTIVATION == SWISH:
            z = e * v
            s = sigmoid(z)
            d = (g * (s + z * s * (1.0 - s))) * w
        else:
            d = behind(g, h * w + b, e, ACTIVATION)
            d = d * (w * share + 1.0) if STATISTIC == SHARE else d * w
        if STATISTIC == ONLINE:
            d = (d - h * pull) * r - rest
        elif STATISTIC == SHARE:
            d -= h * pull
        elif STATISTIC == GIVEN:
            d *= r
        else:
            d = (d - h * pull - rest) * r
        tl.store(dx + where, d.to(dx.dtype.element_ty), mask=inside)


@jit(do_not_specialize=["samples"])
def run_on(moments, state, samples, channels, units, keep, share, most, BLOCK: tl.constexpr):
    """ONLINE: samples are normalized by the running moments before them, which then take in a share of their own.

    `share` is what `keep` leaves of 1; both are float32, whose difference from 1 would have few digits.
    """
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = c < channels
    mean = tl.load(state + c, mask=mask, other=0.0)
    var = tl.load(state + channels + c, mask=mask, other=0.0)
    u = c.to(tl.int64)
    for _ in range(0, samples):
        own = tl.load(moments + u, mask=mask, other=0.0)
        own_var = tl.load(moments + units + u, mask=mask, other=0.0)
        own_var = tl.where(own_var > most, most, own_var)  # an infinite one would stay for ever
        tl.store(moments + units + units + u, own, mask=mask)
        tl.store(moments + units + units + units + u, own_var, mask=mask)
        tl.store(moments + u, mean, mask=mask)
        tl.store(moments + units + u, var, mask=mask)
        off = own - mean
        var += share * (own_var + keep * off * off - var)
        mean += share * off
        u += channels
    tl.store(state + c, mean, mask=mask)
    tl.store(state + channels + c, var, mask=mask)


@jit(do_not_specialize=["samples"])
def control(pulled, moments, state, samples, channels, units, share, eps, BLOCK: tl.constexpr):
    """ONLINE: the pulls are the running values u and v, which the means of g' and g' n then move."""
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = c < channels
    low = tl.load(state + c, mask=mask, other=0.0)
    high = tl.load(state + channels + c, mask=mask, other=0.0)
    i = c.to(tl.int64)
    for _ in range(0, samples):
        along = tl.load(pulled + i, mask=mask, other=0.0)
        total = tl.load(pulled + units + i, mask=mask, other=0.0)
        r = 1.0 / tl.sqrt(tl.load(moments + units + i, mask=mask, other=1.0) + eps)
        off = (
            tl.load(moments + units + units + i, mask=mask, other=0.0) - tl.load(moments + i, mask=mask, other=0.0)
        ) * r
        square = off * off + tl.load(moments + units + units + units + i, mask=mask, other=0.0) * r * r
        tl.store(pulled + i, share * high, mask=mask)
        tl.store(pulled + units + i, share * low, mask=mask)
        low += (total - share * high * off) * r - share * low
        high += along - share * high * square
        i += channels
    tl.store(state + c, low, mask=mask)
    tl.store(state + channels + c, high, mask=mask)
