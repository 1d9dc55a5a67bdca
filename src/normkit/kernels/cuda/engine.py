"""One callable a kernel, with the arguments of the C library's: a plan, rows, and the arrays of its record."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

from normkit import kernels
from normkit.kernels import special
from normkit.kernels.cuda import settings
from normkit.kernels.cuda.channels import Channels
from normkit.kernels.cuda.launch import Call, fixed, partial, processors, start

SQUARE, ZERO_SUM = 0, 3  # statistics, as the templates number them


class SinkhornPlan(NamedTuple):
    """`SinkhornPlan` of `kernels/special/special.h`."""

    x_type: int
    n: int
    rounds: int
    eps: float


class RowPlan(NamedTuple):
    """`RowPlan` of `kernels/cpu/normkit.h`."""

    center: int
    statistic: int
    place: int
    early: int
    x_type: int
    weight_type: int
    bias_type: int
    shared: int
    dim: int
    part: int
    eps: float
    constant: float
    offset: float
    scale: float

    @property
    def kind(self) -> dict[str, int]:
        """What a kernel is compiled for."""
        about = {"STATISTIC": self.statistic, "CENTER": self.center, "PLACE": self.place, "SHARED": self.shared}
        return {**about, "PART": int(self.part < self.dim)}

    def shape(self, s: settings.Setting) -> dict[str, int]:
        """How rows are cut into blocks, whether these are all full, and of rows that are held whole the width."""
        width = {} if s.long else {"WIDTH": settings.compiled_width(self.dim)}
        return {"FULL": int(self.dim % s.block == 0), **width, "ROWS": s.rows, "BLOCK": s.block}

    @property
    def numbers(self) -> tuple[int | float | None, ...]:
        """The arguments that it fixes; None is what a kernel has no code for."""
        sums = 1 / self.dim, self.portion, self.eps or None, self.constant
        return self.dim, self.part, *sums, self.offset or None, self.scale

    @property
    def portion(self) -> float:
        """One over how many entries the statistic counts."""
        return 1 / (self.part if self.statistic == SQUARE else self.dim + (self.statistic == ZERO_SUM))


class Turning(NamedTuple):
    """`Turning` of `kernels/cpu/normkit.h`: sizes of the rows' axes, and the strides of each array along them."""

    norm: int
    pairs: int
    sizes: tuple[int, int, int]
    x: tuple[int, int, int]
    grad: tuple[int, int, int]
    out: tuple[int, int, int]
    angle: tuple[int, int, int]

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.sizes[0] * self.sizes[1] * self.sizes[2]


class PointPlan(NamedTuple):
    """`PointPlan` of `kernels/cpu/normkit.h`."""

    function: int
    x_type: int
    alpha_type: int
    shift_type: int
    weight_type: int
    bias_type: int
    by_row: int
    dim: int
    width: int
    scale: float

    @property
    def numbers(self) -> tuple[int | float | None, ...]:
        """The arguments that it fixes; a scale of 1 is None."""
        return self.dim, self.width, None if self.scale == 1 else self.scale

    def kind(self, s: settings.Setting) -> dict[str, int]:
        """What a kernel is compiled for."""
        about = {"FUNCTION": self.function, "BY_ROW": self.by_row, "FULL": int(self.width % s.block == 0)}
        return {**about, "ROWS": s.rows, "BLOCK": s.block}


@lru_cache(maxsize=1024)
def point_plan(packed: bytes) -> PointPlan:
    """What a plan holds."""
    return PointPlan(*kernels.POINT.unpack(packed))


@lru_cache(maxsize=1024)
def point_forward_call(plan: bytes) -> tuple[PointPlan, settings.Setting, Call]:
    """A plan, how it is shared out, and its forward pass."""
    from normkit.kernels.cuda.templates import pointwise

    p = point_plan(plan)
    s = settings.points(p.width)
    return p, s, fixed(pointwise.forward, (), p.numbers, p.kind(s), s.warps)


@lru_cache(maxsize=1024)
def point_backward_call(plan: bytes) -> tuple[PointPlan, settings.Setting, Call]:
    """The same of its backward pass."""
    from normkit.kernels.cuda.templates import pointwise

    p = point_plan(plan)
    s = settings.points_backward(p.width)
    return p, s, fixed(pointwise.backward, (), p.numbers, p.kind(s), s.warps)


def turning(packed: bytes) -> Turning:
    """What a turning holds."""
    norm, pairs, *rest = kernels.TURNING.unpack(packed)
    return Turning(norm, pairs, *(tuple(rest[i : i + 3]) for i in range(0, 15, 3)))


@lru_cache(maxsize=1024)
def row_plan(packed: bytes) -> RowPlan:
    """What a plan holds."""
    return RowPlan(*kernels.ROW.unpack(packed))


@lru_cache(maxsize=1024)
def forward_call(plan: bytes) -> tuple[int, Call]:
    """How many rows a program takes, and the forward pass of a plan."""
    from normkit.kernels.cuda.templates import row

    p = row_plan(plan)
    s = settings.forward(p.dim)
    kernel = row.forward_long if s.long else row.forward
    return s.rows, fixed(kernel, (), p.numbers, {**p.kind, **p.shape(s), "EARLY": p.early}, s.warps)


@lru_cache(maxsize=1024)
def backward_call(plan: bytes) -> tuple[RowPlan, settings.Setting, Call]:
    """The backward pass of a plan, which of rows that are walked along gives x's gradient alone."""
    from normkit.kernels.cuda.templates import row

    p = row_plan(plan)
    s = settings.backward(p.dim)
    kernel = row.backward_long if s.long else row.backward
    return p, s, fixed(kernel, (), p.numbers, {**p.kind, **p.shape(s)}, s.warps)


class Engine(Channels):
    """The kernels on a GPU, or interpreted on CPU tensors."""

    def __init__(self, interpreted: bool):
        self.interpreted = interpreted
        self.name = "Triton kernel, interpreted" if interpreted else "Triton kernel"

    def row_forward(self, plan: bytes, rows: int, x, residual, weight, bias, total, y, stats) -> None:
        """As the C library's."""
        each, call = forward_call(plan)
        tensors = x, residual, weight, bias, total, y, stats
        start(call, (-(-rows // each),), tensors, (rows,), self.interpreted)

    def row_backward(self, plan: bytes, rows: int, x, grad, more, weight, stats, dx, dweight, dbias) -> None:
        """As the C library's; the gradients of gain and bias are partial sums, added up in the order of the rows."""
        p, s, call = backward_call(plan)
        if s.long:
            start(call, (rows,), (x, grad, more, weight, stats, dx), (), self.interpreted)
            self._gains_long(p, rows, x, grad, stats, dweight, dbias)
            return
        programs, chunk = settings.programs(rows, s, processors(x))
        dgains = partial(x, programs, 1 if p.shared else p.dim, dweight)
        dbiases = partial(x, programs, p.dim, dbias)
        tensors = x, grad, more, weight, stats, dx, dgains, dbiases
        start(call, (programs,), tensors, (rows, chunk), self.interpreted)
        self._add_up(dgains, dweight, dbiases, dbias)

    def _gains_long(self, p: RowPlan, rows: int, x, grad, stats, dweight, dbias) -> None:
        from normkit.kernels.cuda.templates import row

        if dweight is None and dbias is None:
            return
        s = settings.GAINS
        columns = -(-p.dim // s.block)
        programs, chunk = settings.programs(rows, s, -(-processors(x) // columns))
        dgains = partial(x, programs, columns if p.shared else p.dim, dweight)
        dbiases = partial(x, programs, p.dim, dbias)
        self._launch(
            row.gains_long,
            (columns, programs),
            (x, grad, stats, dgains, dbiases, rows, p.dim, p.part, chunk, p.portion, p.eps or None, p.constant),
            {**p.kind, **p.shape(s)},
            s.warps,
        )
        self._add_up(dgains, dweight, dbiases, dbias)

    def rotate_forward(self, plan: bytes, turned: bytes, x, weight, bias, cos, sin, y, stats) -> None:
        """As the C library's."""
        from normkit.kernels.cuda.templates import rotate

        p, t = row_plan(plan), turning(turned)
        s = settings.heads(p.dim)
        strides = *t.sizes[1:], *t.x, *t.out, *t.angle
        kind = {"NORM": t.norm, "PAIRS": t.pairs, "CENTER": p.center, "PLACE": p.place, "EARLY": p.early}
        self._launch(
            rotate.forward,
            -(-t.rows // s.rows),
            (x, weight, bias, cos, sin, y, stats, t.rows, *strides, p.dim // 2, p.eps or None, p.offset, p.scale),
            {**kind, "SHARED": p.shared, "ROWS": s.rows, "BLOCK": s.block},
            s.warps,
        )

    def rotate_backward(self, plan: bytes, turned: bytes, x, grad, weight, cos, sin, stats, dx, dweight, dbias) -> None:
        """As the C library's."""
        from normkit.kernels.cuda.templates import rotate

        p, t = row_plan(plan), turning(turned)
        s = settings.heads(p.dim)
        programs, chunk = settings.programs(t.rows, s, processors(x))
        dgains = partial(x, programs, 1 if p.shared else p.dim, dweight)
        dbiases = partial(x, programs, p.dim, dbias)
        arrays = x, grad, weight, cos, sin, stats, dx, dgains, dbiases
        strides = *t.sizes[1:], chunk, *t.x, *t.grad, *t.out, *t.angle
        kind = {"PAIRS": t.pairs, "CENTER": p.center, "PLACE": p.place, "SHARED": p.shared}
        self._launch(
            rotate.backward,
            programs,
            (*arrays, t.rows, *strides, p.dim // 2, p.eps or None, p.offset, p.scale),
            {**kind, "ROWS": s.rows, "BLOCK": s.block},
            s.warps,
        )
        self._add_up(dgains, dweight, dbiases, dbias)

    def sinkhorn(self, plan: bytes, count: int, x, y) -> None:
        """As the C library's."""
        from normkit.kernels.cuda.templates import sinkhorn

        p = SinkhornPlan(*special.SINKHORN.unpack(plan))
        s = settings.matrices(p.n)
        arguments = x, y, count, p.n, p.rounds, p.eps
        self._launch(sinkhorn.forward, -(-count // s.rows), arguments, {"MATRICES": s.rows, "SIDE": s.block}, s.warps)

    def sinkhorn_backward(self, plan: bytes, count: int, x, grad, dx) -> None:
        """As the C library's; each step's divisors lie in memory between the way there and the way back."""
        from normkit.kernels.cuda.templates import sinkhorn

        p = SinkhornPlan(*special.SINKHORN.unpack(plan))
        s = settings.matrices(p.n)
        sums = torch.empty(count, 2 * p.rounds - 1, p.n, dtype=torch.float32, device=x.device)
        arguments = x, grad, dx, sums, count, p.n, p.rounds, p.eps
        self._launch(sinkhorn.backward, -(-count // s.rows), arguments, {"MATRICES": s.rows, "SIDE": s.block}, s.warps)

    def point_forward(self, plan: bytes, rows: int, x, alpha, shift, weight, bias, y) -> None:
        """As the C library's."""
        p, s, call = point_forward_call(plan)
        grid = -(-rows // s.rows), -(-p.width // s.block)
        start(call, grid, (x, alpha, shift, weight, bias, y), (rows,), self.interpreted)

    def point_backward(
        self, plan: bytes, rows: int, x, grad, alpha, shift, weight, dx, dalpha, dshift, dweight, dbias
    ) -> None:
        """As the C library's; what many entries share is added up from partial sums, in their order."""
        p, s, call = point_backward_call(plan)
        columns = -(-p.width // s.block)
        programs, chunk = settings.programs(rows, s, -(-processors(x) // columns))
        dalphas, dshifts = (partial(x, programs, columns, gradient) for gradient in (dalpha, dshift))
        each = (rows, columns) if p.by_row else (programs, p.width)
        dgains, dbiases = (partial(x, *each, gradient) for gradient in (dweight, dbias))
        tensors = x, grad, alpha, shift, weight, dx, dalphas, dshifts, dgains, dbiases
        start(call, (programs, columns), tensors, (rows, chunk), self.interpreted)
        if p.by_row:
            dgains, dbiases = (None if sums is None else sums.sum(1).view(-1, p.dim) for sums in (dgains, dbiases))
        self._add_up(dgains, dweight, dbiases, dbias, dalphas, dalpha, dshifts, dshift)
