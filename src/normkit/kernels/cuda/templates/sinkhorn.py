"""Sinkhorn's steps on small matrices, as `kernels/special/sinkhorn.h` has them: a program holds several, each whole.

What was divided is multiplied back on the way back, so that of each step only the divisors are kept.
"""

from __future__ import annotations

import triton.language as tl

from normkit.kernels.cuda.templates.language import add_up, jit, over


@jit
def places(count, n, MATRICES: tl.constexpr, SIDE: tl.constexpr):
    """Where the entries of a program's matrices lie, and which are there."""
    matrix = tl.program_id(0).to(tl.int64) * MATRICES + tl.arange(0, MATRICES)
    row = tl.arange(0, SIDE)[None, :, None]
    column = tl.arange(0, SIDE)[None, None, :]
    inside = (matrix < count)[:, None, None] & (row < n) & (column < n)
    return matrix[:, None, None] * (n * n) + row * n + column, inside, matrix


@jit
def softmax(v, inside):
    """Of each row; 0 where nothing is."""
    most = tl.reduce(tl.where(inside, v, float("-inf")), 2, tl.standard._elementwise_max)
    e = tl.where(inside, tl.exp(v - most[:, :, None]), 0.0)
    return tl.where(inside, over(e, add_up(e, 2)[:, :, None] + tl.where(inside, 0.0, 1.0)), 0.0)


@jit
def divided(m, inside, eps, AXIS: tl.constexpr):
    """The matrices over their sums along an axis plus eps, and these."""
    sums = add_up(m, AXIS) + eps
    return tl.where(inside, over(m, tl.expand_dims(sums, AXIS) + tl.where(inside, 0.0, 1.0)), 0.0), sums


@jit
def keep(sums, to, matrix, count, n, step, steps, SIDE: tl.constexpr):
    """Store a step's divisors."""
    line = tl.arange(0, SIDE)
    at = (matrix[:, None] * steps + step) * n + line[None, :]
    tl.store(to + at, sums, mask=(matrix < count)[:, None] & (line < n)[None, :])


@jit
def sent_back(g, m, inside, sums, matrix, count, n, step, steps, AXIS: tl.constexpr, SIDE: tl.constexpr):
    """The gradient by what a step divided, and that."""
    line = tl.arange(0, SIDE)
    at = (matrix[:, None] * steps + step) * n + line[None, :]
    s = tl.load(sums + at, mask=(matrix < count)[:, None] & (line < n)[None, :], other=1.0)
    along = add_up(g * m, AXIS)
    s = tl.expand_dims(s, AXIS)
    return tl.where(inside, over(g - tl.expand_dims(along, AXIS), s), 0.0), m * s


@jit(do_not_specialize=["count", "rounds"])
def forward(x, y, count, n, rounds, eps, MATRICES: tl.constexpr, SIDE: tl.constexpr):
    """y of MATRICES matrices."""
    where, inside, _ = places(count, n, MATRICES, SIDE)
    v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    m, _ = divided(tl.where(inside, softmax(v, inside) + eps, 0.0), inside, eps, 1)
    for _ in range(1, rounds):
        m, _ = divided(m, inside, eps, 2)
        m, _ = divided(m, inside, eps, 1)
    tl.store(y + where, m.to(y.dtype.element_ty), mask=inside)


@jit(do_not_specialize=["count", "rounds"])
def backward(x, grad, dx, sums, count, n, rounds, eps, MATRICES: tl.constexpr, SIDE: tl.constexpr):
    """dx of MATRICES matrices."""
    where, inside, matrix = places(count, n, MATRICES, SIDE)
    v = tl.load(x + where, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(grad + where, mask=inside, other=0.0).to(tl.float32)
    steps = 2 * rounds - 1
    p = softmax(v, inside)
    m, s = divided(tl.where(inside, p + eps, 0.0), inside, eps, 1)
    keep(s, sums, matrix, count, n, 0, steps, SIDE)
    for k in range(1, rounds):
        m, s = divided(m, inside, eps, 2)
        keep(s, sums, matrix, count, n, 2 * k - 1, steps, SIDE)
        m, s = divided(m, inside, eps, 1)
        keep(s, sums, matrix, count, n, 2 * k, steps, SIDE)
    tl.debug_barrier()  # what one thread has kept another reads
    for k in range(1, rounds):
        step = 2 * (rounds - k)
        g, m = sent_back(g, m, inside, sums, matrix, count, n, step, steps, 1, SIDE)
        g, m = sent_back(g, m, inside, sums, matrix, count, n, step - 1, steps, 2, SIDE)
    g, m = sent_back(g, m, inside, sums, matrix, count, n, 0, steps, 1, SIDE)
    out = p * (g - add_up(g * p, 2)[:, :, None])
    tl.store(dx + where, out.to(dx.dtype.element_ty), mask=inside)
