"""The unit template: a group of channels of one sample that a program holds, read once and written once.

What the channel template does in two stages, and the same numbers, with channels first: a tile has the members of a
unit, its channels, by their positions. The backward pass leaves sums of each channel for `channel.parameters`.
"""

from __future__ import annotations

import triton.language as tl

from normkit.kernels.cuda.templates.channel import (
    DEVIATION,
    SWISH,
    activated,
    affine_of,
    at_threshold,
    behind,
    moments_of,
    normal,
    parameter,
    sigmoid,
)
from normkit.kernels.cuda.templates.language import add_up, jit, over, root
from normkit.kernels.cuda.templates.row import about_mean


@jit
def place(groups, group, space, MEMBERS: tl.constexpr, BLOCK: tl.constexpr):
    """Where the entries of a program's unit lie, which are there, its channels, their lines and which are there."""
    unit = tl.program_id(0).to(tl.int64)
    m = tl.arange(0, MEMBERS)
    at = tl.arange(0, BLOCK)
    line = unit * group + m
    mask = m < group
    inside = mask[:, None] & (at < space)[None, :]
    return line[:, None] * space + at[None, :], inside, (unit % groups) * group + m, line, mask


@jit
def all_of(v):
    """The sum of a tile, as a tile of one."""
    return add_up(add_up(v, 1), 0) + tl.full([1, 1], 0.0, v.dtype)


@jit(do_not_specialize=["units", "group"])
def forward(
    x, weight, bias, extra, moments, learned, y, groups, group, space, units, eps,
    STATISTIC: tl.constexpr, ACTIVATION: tl.constexpr, MEMBERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y of a unit, and its mean and variance."""
    where, inside, c, _, mask = place(groups, group, space, MEMBERS, BLOCK)
    v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    values = (group * space) * 1.0
    z = v
    mean = tl.full([1, 1], 0.0, tl.float32)
    left = mean
    if STATISTIC == DEVIATION:
        share = over(1.0, values)
        mean = all_of(v * share)
        z = tl.where(inside, v - mean, 0.0)
        left, square = about_mean(all_of(z), all_of(z * z), share)
        z -= left
    else:
        square = all_of(v * v)
    var = over(square, values)
    unit = tl.program_id(0).to(tl.int64) + tl.full([1, 1], 0, tl.int64)
    tl.store(moments + unit, mean.to(tl.float64) + left.to(tl.float64))
    tl.store(moments + units + unit, var.to(tl.float64))
    if learned is not None:
        eps = tl.load(learned).to(tl.float32)
    r = over(1.0, root(var + eps))
    w, b, e = affine_of(weight, bias, extra, c, mask, False)
    if ACTIVATION == SWISH:
        z = v * sigmoid(e * v)
    out = (z * r) * w + b
    tl.store(y + where, activated(out, e, ACTIVATION).to(y.dtype.element_ty), mask=inside)


@jit
def slopes(g, v, h, r, w, b, e, inside, ACTIVATION: tl.constexpr):
    """g', g' times what the gain multiplies, the derivative by the extra, and that by n or, of SWISH, by x / r."""
    if ACTIVATION == SWISH:
        s = sigmoid(e * v)
        t = g * (v * r)
        return g, t * s, (t * (s * (1.0 - s))) * v, (g * (s + (e * v) * s * (1.0 - s))) * w
    else:
        z = h * w + b
        first = tl.where(inside, behind(g, z, e, ACTIVATION), 0.0)
        return first, first * h, tl.where(inside, at_threshold(g, z, e), 0.0), first * w


@jit(do_not_specialize=["units", "cells", "group"])
def backward(
    x, grad, weight, bias, extra, moments, learned, dx, sums, parts, groups, group, space, units, cells, eps,
    STATISTIC: tl.constexpr, ACTIVATION: tl.constexpr, MEMBERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of a unit, its channels' sums for the parameters' gradients, and its part of that of a learned eps."""
    where, inside, c, line, mask = place(groups, group, space, MEMBERS, BLOCK)
    unit = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    mean, left, r, _ = moments_of(moments, unit, units, unit < units, eps, learned, STATISTIC)
    turned = r.to(tl.float64) * r.to(tl.float64)
    mean = mean[:, None]
    left = left[:, None]
    r = r[:, None]
    w, b, e = affine_of(weight, bias, extra, c, mask, False)
    v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(grad + where, mask=inside, other=0.0).to(tl.float32)
    h = tl.where(inside, normal(v, mean, left, r, STATISTIC), 0.0)
    first, second, third, d = slopes(g, v, h, r, w, b, e, inside, ACTIVATION)
    total = add_up(first, 1)
    along = add_up(second, 1)
    if sums is not None:
        tl.store(sums + line, total, mask=mask)
        tl.store(sums + cells + line, along, mask=mask)
        if extra is not None:
            tl.store(sums + cells + cells + line, add_up(third, 1), mask=mask)
    gain = parameter(weight, c, mask, 1.0).to(tl.float64)
    pulled = add_up(along.to(tl.float64) * gain, 0) + tl.full([1], 0.0, tl.float64)
    if parts is not None:
        tl.store(parts + unit, pulled * turned)
    values = group.to(tl.float64) * space
    d -= h * (pulled / values).to(tl.float32)[:, None]
    if (STATISTIC == DEVIATION) and (ACTIVATION != SWISH):
        d -= (add_up(total.to(tl.float64) * gain, 0) / values).to(tl.float32)
    if dx is not None:
        tl.store(dx + where, (d * r).to(dx.dtype.element_ty), mask=inside)
