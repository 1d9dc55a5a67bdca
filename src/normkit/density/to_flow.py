"""TO-FLOW: a continuous flow that learns how long it takes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.density._field import ADAPTIVE, METHODS, FieldFlow, adapt, integrate
from normkit.statistics import reals

SOLVED = "a solve by a fixed grid is exact only as the grid gets finer"


@method(
    "to-flow",
    paper="TO-FLOW: Efficient Continuous Normalizing Flows with Temporal Optimization (Du et al., 2022), "
    "arXiv 2203.10335",
    evidence="abstract",
    shape="N C",
    example={"hidden": 4, "steps": 2},
    exempt={
        "inverse float64": SOLVED,
        "log-det": SOLVED,
        "scales near float64": SOLVED,
        "moves anchor": "a step of the alternation sets the time that band and penalty are about",
    },
    provenance="the abstract and a summary of the paper; no code of the authors was to be had",
)
class TOFlow(FieldFlow):
    """Carry each sample along a velocity field for a learned time.

    For a continuous flow with ``"dopri5"`` that takes too many evaluations of its field. On a fixed grid a shorter time
    makes the error less and not the cost; there ``cnf`` is enough.

    The end T is learned in turn with the weights, held in a band, and short where the data allow it. Some steps on the
    weights, one on T, then ``anchor.copy_(end_time.detach())`` and :meth:`clip_`.

        dL/dT = mean(z f(T, z) - tr df/dx(T, z)),    L = mean(|z|^2 / 2 + D/2 log 2 pi - log_det)

    Args:
        dim: D.
        hidden, method, steps, tolerance: as of :class:`CNF`; ``"dopri5"`` is differentiable in T as well.
        end_time: T at first. The field sees times up to T.
        band: how far T may be from the anchor.
        alpha: the weight of :meth:`regularizer`.
        anchor: the time that band and penalty are about; None: end_time.

    ``forward(x)``, (N, D), returns ``z`` and ``log_det`` (N,), differentiable in T through the steps; ``inverse(z)``
    returns x. State: ``end_time``, ``anchor``, ``hidden`` and ``output``.

    TO-FLOW (Du et al., 2022), arXiv 2203.10335.
    """

    anchor: Tensor

    def __init__(
        self,
        dim: int,
        *,
        hidden: int = 64,
        method: str = "rk4",
        steps: int = 8,
        end_time: float = 1.0,
        band: float = 0.5,
        alpha: float = 0.0,
        anchor: float | None = None,
        tolerance: float = 1e-6,
    ):
        super().__init__(dim, hidden, method, steps, (*METHODS, ADAPTIVE))
        self.tolerance = check.number(self, "tolerance", tolerance, 0.0, open_low=True)
        start = check.number(self, "end_time", end_time, 0.0, open_low=True)
        self.band, self.alpha = check.number(self, "band", band, 0.0), check.number(self, "alpha", alpha, 0.0)
        about = start if anchor is None else check.number(self, "anchor", anchor)
        self.end_time = nn.Parameter(torch.tensor(start))
        self.register_buffer("anchor", torch.tensor(about))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return where ``x`` (N, D) is carried, and the log-determinant of each sample."""
        wide = reals(self, "x", x, (None, self.dim))
        end = self.end_time.to(wide.dtype)
        z, log_det = self._solved(wide, torch.zeros_like(end), end)
        return z.to(x.dtype), log_det.to(x.dtype)

    def inverse(self, z: Tensor) -> Tensor:
        """Return where ``z`` (N, D) came from, up to the solver's error."""
        wide = reals(self, "z", z, (None, self.dim))
        end = self.end_time.to(wide.dtype)
        return self._solved(wide, end, torch.zeros_like(end))[0].to(z.dtype)

    @torch.no_grad()
    def time_gradient(self, x: Tensor) -> Tensor:
        """Return dL/dT at samples (N, D) by one evaluation of the field at the end; ``.grad`` is left alone."""
        z = self(x)[0]
        velocity, divergence = self.field(self.end_time.to(z.dtype), z)
        return ((z * velocity).sum(1) - divergence).mean()

    def regularizer(self) -> Tensor:
        """Return alpha (T - anchor)^2."""
        return self.alpha * (self.end_time - self.anchor).square()

    @torch.no_grad()
    def clip_(self) -> Tensor:
        """Put the time back into its band, and return it."""
        return self.end_time.clamp_(self.anchor - self.band, self.anchor + self.band)

    def _solved(self, x: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, ...]:
        slope = lambda t, state: self.field(t, state[0])  # noqa: E731
        state = x, x.new_zeros(len(x))
        if self.method == ADAPTIVE:
            return adapt(self, slope, state, start, end, self.tolerance)
        return integrate(slope, state, start, end, self.steps, self.method)
