"""One callable a kernel, with the arguments of the C library's: a plan, rows, and the arrays of its record."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import kernels
from normkit.kernels.cuda import settings
from normkit.kernels.cuda.launch import launch, processors


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
        return {"STATISTIC": self.statistic, "CENTER": self.center, "PLACE": self.place, "SHARED": self.shared}


@lru_cache(maxsize=1024)
def row_plan(packed: bytes) -> RowPlan:
    """What a plan holds."""
    return RowPlan(*kernels.ROW.unpack(packed))


class Engine:
    """The kernels on a GPU, or interpreted on CPU tensors."""

    def __init__(self, interpreted: bool):
        self.interpreted = interpreted
        self.name = "Triton kernel, interpreted" if interpreted else "Triton kernel"

    def row_forward(self, plan: bytes, rows: int, x, residual, weight, bias, total, y, stats) -> None:
        """As the C library's."""
        from normkit.kernels.cuda.templates import row

        p = row_plan(plan)
        s = settings.forward(p.dim)
        numbers = rows, p.dim, p.part, p.eps, p.constant, p.offset, p.scale
        kernel = row.forward_long if s.long else row.forward
        self._launch(
            kernel,
            -(-rows // s.rows),
            (x, residual, weight, bias, total, y, stats, *numbers),
            {**p.kind, "EARLY": p.early, "ROWS": s.rows, "BLOCK": s.block},
            s.warps,
        )

    def row_backward(self, plan: bytes, rows: int, x, grad, more, weight, stats, dx, dweight, dbias) -> None:
        """As the C library's; the gradients of gain and bias are partial sums, added up in the order of the rows."""
        from normkit.kernels.cuda.templates import row

        p = row_plan(plan)
        s = settings.backward(p.dim)
        numbers = p.dim, p.part, p.eps, p.constant, p.offset, p.scale
        if s.long:
            kind = {**p.kind, "BLOCK": s.block}
            self._launch(row.backward_long, rows, (x, grad, more, weight, stats, dx, *numbers), kind, s.warps)
            self._gains_long(p, rows, x, grad, stats, dweight, dbias)
            return
        programs, chunk = settings.programs(rows, s, processors(x))
        dgains = partial(x, programs, 1 if p.shared else p.dim, dweight)
        dbiases = partial(x, programs, p.dim, dbias)
        self._launch(
            row.backward,
            programs,
            (x, grad, more, weight, stats, dx, dgains, dbiases, rows, p.dim, p.part, chunk, *numbers[2:]),
            {**p.kind, "ROWS": s.rows, "BLOCK": s.block},
            s.warps,
        )
        add_partials(dgains, dweight)
        add_partials(dbiases, dbias)

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
            (x, grad, stats, dgains, dbiases, rows, p.dim, p.part, chunk, p.eps, p.constant),
            {**p.kind, "ROWS": s.rows, "BLOCK": s.block},
            s.warps,
        )
        add_partials(dgains, dweight)
        add_partials(dbiases, dbias)

    def _launch(self, kernel, grid: int | tuple[int, ...], arguments: tuple, constants: dict, warps: int) -> None:
        grid = (grid,) if isinstance(grid, int) else grid
        launch(kernel, grid, arguments, constants, warps, self.interpreted)


def partial(x: Tensor, programs: int, width: int, wanted: Tensor | None) -> Tensor | None:
    """Room for one sum a program, where a gradient is wanted."""
    return None if wanted is None else torch.empty(programs, width, dtype=torch.float32, device=x.device)


def add_partials(sums: Tensor | None, to: Tensor | None) -> None:
    """Adds up what the programs have found, always in the same order; `to` of one entry takes all of it."""
    if sums is not None and to is not None:
        to.copy_(sums.sum().view(to.shape) if to.numel() == 1 else sums.sum(0).view(to.shape))
