"""The continuous normalizing flow: samples carried along a learned velocity field."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.density._field import ADAPTIVE, METHODS, Adjoint, FieldFlow, Slopes, adapt, integrate
from normkit.ops.derivatives import under_transform
from normkit.statistics import reals

SOLVED = "a solve by a fixed grid is exact only as the grid gets finer"


@method(
    "cnf",
    paper="Neural Ordinary Differential Equations (Chen et al., 2018), arXiv 1806.07366",
    evidence="library",
    shape="N C",
    example={"hidden": 4, "steps": 2},
    exempt={"inverse float64": SOLVED, "log-det": SOLVED, "scales near float64": SOLVED},
)
class CNF(FieldFlow):
    """Carry each sample along a velocity field, and sum up how much the field thins the density out.

    For densities by a network free of form, at the price that each density and each sample solves an equation.
    ``conditional-flow-matching`` trains such a field without solving it, and ``to-flow`` learns how long it has to be
    solved. For images in one pass take ``jet-coupling``.

    A flow whose network may be any: nothing in it has to be invertible, and the trace of its Jacobian is enough.

        dx/dt = f(t, x),    (d log_det) / dt = tr df/dx,    f(t, x) = W2 tanh(W1 [x, t] + b1) + b2

    from 0 to ``end_time`` for :meth:`forward`, and back for :meth:`inverse`, on one grid.

    Args:
        dim: D.
        hidden: the width of f.
        method: ``"euler"``, ``"midpoint"`` or ``"rk4"``, which is Kutta's 3/8 rule; or ``"dopri5"`` of torchdiffeq,
            whose steps fit themselves to the tolerance. One that does not converge is named with its time.
        steps: of the grid.
        tolerance: of ``"dopri5"``, relative and absolute.
        end_time: where the flow ends.
        adjoint: whether the backward pass solves again, backward, and so needs memory for no step; the gradient is then
            right up to the solver's error, and has no further derivatives. Under a transform of ``torch.func`` it is
            as without.
        field: another f: a callable (t, x) -> (velocity, divergence); a module's parameters are learned. With
            ``adjoint`` no others are.

    ``forward(x)``, (N, D), returns ``z`` and ``log_det`` (N,); ``inverse(z)`` returns x, up to the solver's error.

    Neural Ordinary Differential Equations (Chen et al., 2018), arXiv 1806.07366.
    """

    def __init__(
        self,
        dim: int,
        *,
        hidden: int = 64,
        method: str = "rk4",
        steps: int = 8,
        end_time: float = 1.0,
        adjoint: bool = False,
        tolerance: float = 1e-6,
        field: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
    ):
        super().__init__(dim, hidden, method, steps, (*METHODS, ADAPTIVE))
        self.tolerance = check.number(self, "tolerance", tolerance, 0.0, open_low=True)
        if adjoint and method == ADAPTIVE:
            raise ValueError("CNF: adjoint is of a grid; method 'dopri5' keeps its steps")
        self.end_time = check.number(self, "end_time", end_time, 0.0, open_low=True)
        self.adjoint = adjoint
        if field is not None:
            if not callable(field):
                raise TypeError(f"{type(self).__name__}: field must be a callable (t, x), not {type(field).__name__}")
            del self.hidden, self.output
        self.given = field

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return where ``x`` (N, D) is carried, and the log-determinant of each sample."""
        wide = reals(self, "x", x, (None, self.dim))
        z, log_det = self._solved(wide, 0.0, self.end_time)
        return z.to(x.dtype), log_det.to(x.dtype)

    def inverse(self, z: Tensor) -> Tensor:
        """Return where ``z`` (N, D) came from, up to the solver's error."""
        wide = reals(self, "z", z, (None, self.dim))
        return self._solved(wide, self.end_time, 0.0)[0].to(z.dtype)

    def _solved(self, x: Tensor, start: float, end: float) -> tuple[Tensor, ...]:
        times, how = (x.new_tensor(start), x.new_tensor(end)), (self.steps, self.method)
        if self.method == ADAPTIVE:
            return adapt(self, self._slope, (x, x.new_zeros(len(x))), *times, self.tolerance)
        if self.adjoint and not under_transform():
            of = Slopes(self, self._slope)
            self._refuse_hidden(of, times[0], x.detach())
            return Adjoint.apply(of, times, how, x, *(p for p in of.parameters() if p.requires_grad))
        return integrate(self._slope, (x, x.new_zeros(len(x))), *times, *how)

    def _refuse_hidden(self, of: Slopes, t: Tensor, x: Tensor) -> None:
        """Refuse a field that learns something that the adjoint would not see."""
        if self.given is None or isinstance(self.given, nn.Module) or not torch.is_grad_enabled():
            return
        if any(value.requires_grad for value in of(t, (x, x.new_zeros(len(x))))):
            raise ValueError("CNF: with adjoint=True a field that learns must be a module, whose parameters are seen")

    def _slope(self, t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return (self.given or self.field)(t, state[0])
