"""A flow's samples as proposals of a Markov chain, from any base."""

from __future__ import annotations

from torch import Tensor, nn

from normkit.catalog import method
from normkit.density._flows import back, flow_of, width
from normkit.density._inputs import Energy, energy_of, gaussian
from normkit.density.imh_step import Moved, imh_step
from normkit.kinds import Method
from normkit.statistics import reals


@method(
    "flow-imh",
    paper="Normalizing flows as an enhanced sampling method for atomistic supercooled liquids (Jung et al., 2024), "
    "arXiv 2404.09914",
    evidence="equations",
    shape="N C",
    inputs={"z": "N C", "uniform": "N : unit"},
    example={"energy": "double-well"},
    provenance="the paper's equations, and a test of what a chain samples",
)
class FlowIMH(Method):
    """Propose samples of a flow, whatever the state, so that the chain jumps between modes and samples the target.

    For a target of several modes and a flow that is nearly right: a fresh sample may be anywhere, where local moves
    stay in their mode. Where proposals are hardly ever taken, take ``flow-hmc``.

    With q the flow's density, base its base and z' a latent of the base, x' = g(z') is taken where

        log(uniform) < log w(x') - log w(x),    log w(x) = -energy(x) - log q(x)

    With an energy as the base, such as that of the same atoms at a higher temperature, latents are its configurations.

    Args:
        flow: a transform from data to latents, with ``inverse``; or a dimension D, which is an affine map.
        energy: a callable (N, D) -> (N,), temperature included, or ``"double-well"``: a d + b d^2 + c d^4 +
            |rest|^2 / 2 with d the first coordinate.
        base_energy: of the latents, a callable, up to a constant; None: standard normal.
        coefficients: [a, b, c] of the double well; None: [0, -4, 1].

    ``forward(x, z, uniform)``: states (N, D), latents like them that were drawn of the base, and random numbers of
    [0, 1), (N,). Returns what :func:`imh_step` does: ``x``, ``log_target``, ``log_proposal`` and ``accepted``, 0 or 1.
    A chain whose state has a great weight does not move for long, which the mean of ``accepted`` does not show. State:
    the flow's.

    Normalizing flows as an enhanced sampling method for atomistic supercooled liquids (Jung et al., 2024),
    arXiv 2404.09914.
    """

    def __init__(
        self,
        flow: int | nn.Module,
        *,
        energy: str | Energy,
        base_energy: Energy | None = None,
        coefficients: list[float] | None = None,
    ):
        super().__init__()
        self.flow = flow_of(self, "flow", flow)
        energy_of(self, energy, coefficients)
        self.energy, self.coefficients = energy, coefficients
        if base_energy is not None and not callable(base_energy):
            raise TypeError(f"FlowIMH: base_energy must be callable or None, not {base_energy!r}")
        self.base_energy = base_energy

    def forward(self, x: Tensor, z: Tensor, uniform: Tensor) -> Moved:
        """Return what the latents stand for, or the old states."""
        state, latent = reals(self, "x", x, (None, width(self.flow))), reals(self, "z", z, x.shape, x)
        chance = reals(self, "uniform", uniform, x.shape[:1], x)
        energy = energy_of(self, self.energy, self.coefficients)
        own, log_det = self.flow(state)
        proposal, log_det_back = back(self.flow, latent)
        now = -energy(state), self._base(own) + log_det
        new = -energy(proposal), self._base(latent) - log_det_back
        outcome = imh_step(state, *now, proposal, *new, chance)
        return Moved(*(value.to(x.dtype) for value in outcome))

    def _base(self, z: Tensor) -> Tensor:
        return gaussian(z, 0.0, 1.0) if self.base_energy is None else -self.base_energy(z)
