"""Hamiltonian Monte Carlo among the latents of a flow."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.density._flows import Affine, back, flow_of, width
from normkit.density._inputs import Energy, energy_of, force
from normkit.kinds import Method
from normkit.statistics import reals


class Leapt(NamedTuple):
    """The states after a jump, and which rows moved."""

    x: Tensor
    accepted: Tensor


@method(
    "flow-hmc",
    paper="HMC with Normalizing Flows (Foreman et al., 2021), arXiv 2112.01586",
    evidence="equations",
    shape="N C",
    inputs={"momentum": "N C", "uniform": "N : unit"},
    example={"energy": "double-well", "step_size": 0.05, "steps": 2},
    provenance="the paper's equations, and a test of what a chain samples",
    exempt={
        "gradients flow.shift": "a shift of the latents changes no trajectory",
        "offsets 1e6 gradients": "that of the matrix is what is left of the ways to the latents and back",
    },
)
class FlowHMC(Method):
    """Walk on the energy landscape that a flow has straightened, and keep the target exact.

    For sampling an energy whose modes are so narrow and bent that plain HMC needs short steps, with a flow that is
    nearly right. It reaches no mode that lies far off: for that, or where the energy has no gradient, take
    ``flow-imh``.

    A flow that is nearly right turns narrow and bent modes into round ones, in which long steps are accepted. With
    x = g(z) the flow's way back, momentum p and H = |p|^2 / 2 + energy(g(z)) - log |det dg/dz|,

        p = p - step_size dH/dz / 2,    then `steps` times z = z + step_size p, p = p - step_size dH/dz,
        the last kick a half one; accept where log(uniform) < H before - H after

    Args:
        flow: a transform from data to latents, with ``inverse``; or a dimension D, which is an affine map.
        energy: a callable (N, D) -> (N,), or ``"double-well"``: a d + b d^2 + c d^4 + |rest|^2 / 2 with d the first
            coordinate.
        step_size: of the leapfrog.
        steps: of the leapfrog.
        coefficients: [a, b, c] of the double well; None: [0, -4, 1].

    ``forward(x, momentum, uniform)``: states (N, D), normal numbers like them, and random numbers of [0, 1), (N,).
    Returns ``x`` and ``accepted``, 0 or 1. State: the flow's.

    HMC with Normalizing Flows (Foreman et al., 2021), arXiv 2112.01586.
    """

    def __init__(
        self,
        flow: int | nn.Module,
        *,
        energy: str | Energy,
        step_size: float,
        steps: int,
        coefficients: list[float] | None = None,
    ):
        super().__init__()
        self.flow = flow_of(self, "flow", flow)
        energy_of(self, energy, coefficients)
        self.energy, self.coefficients = energy, coefficients
        self.step_size = check.number(self, "step_size", step_size, 0.0, open_low=True)
        self.steps = check.size(self, "steps", steps)

    def forward(self, x: Tensor, momentum: Tensor, uniform: Tensor) -> Leapt:
        """Return where a trajectory leads to, or the old state."""
        state = reals(self, "x", x, (None, width(self.flow)))
        kick = reals(self, "momentum", momentum, x.shape, x)
        chance = reals(self, "uniform", uniform, x.shape[:1], x)
        begin = self.flow(state)[0]
        end, kicked = self._leap(begin, kick)
        gain = self._height(begin) + kick.square().sum(1) / 2 - self._height(end) - kicked.square().sum(1) / 2
        move = chance.log() < gain
        new_state = torch.where(move.unsqueeze(1), back(self.flow, end)[0], state)
        return Leapt(new_state.to(x.dtype), move.to(x.dtype))

    def _height(self, z: Tensor) -> Tensor:
        """The energy of latents."""
        x, log_det = back(self.flow, z)
        return energy_of(self, self.energy, self.coefficients)(x) - log_det

    def _slope(self, z: Tensor) -> Tensor:
        """The gradient of the energy at latents; of an affine flow by its transpose, which every transform takes."""
        if not isinstance(self.flow, Affine):
            return torch.func.grad(lambda z: self._height(z).sum())(z)
        pull = force(energy_of(self, self.energy, self.coefficients), back(self.flow, z)[0])
        return -torch.linalg.solve(self.flow.matrix.to(z.dtype).mT, pull.mT).mT

    def _leap(self, z: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        slope = self._slope
        p = p - self.step_size / 2 * slope(z)
        for step in range(self.steps):
            z = z + self.step_size * p
            p = p - self.step_size * (1 if step < self.steps - 1 else 0.5) * slope(z)
        return z, p
