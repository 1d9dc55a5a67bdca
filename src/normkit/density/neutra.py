"""NeuTra: a target seen from the latent space of a flow, where it is nearly Gaussian."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.density._flows import back
from normkit.density._inputs import Energy, energy_of
from normkit.kinds import Method
from normkit.statistics import accurate, reals


class Pulled(NamedTuple):
    """The log density of latents, and the points that they stand for."""

    log_prob: Tensor
    x: Tensor


@method(
    "neutra",
    paper="On Sampling with Approximate Transport Maps (Grenioux et al., 2023), arXiv 2302.04763",
    shape="N C",
    example={"energy": "double-well"},
)
class NeuTra(Method):
    """Pull a target back to the latent space of a flow, for any local sampler to walk there.

    For a local sampler such as ``mala`` on a target of high dimension, with a flow that need not be good. A walk among
    latents does not jump between modes; for that take ``imh-step`` or ``isir-step``.

    A walk among latents is easy where the flow has straightened the target. With x = flow.inverse(z),

        log_prob(z) = -energy(x) / T + log |det dx/dz|

    Args:
        flow: a transform from data to latents, with ``inverse``; or a dimension D, which is an affine map
            x = matrix z + shift, the identity at first.
        energy: a callable (N, D) -> (N,), or ``"double-well"``: a d + b d^2 + c d^4 + |rest|^2 / 2 with d the first
            coordinate.
        temperature: T; it enters once, here, and the sampler is to have none.
        coefficients: [a, b, c] of the double well; None: [0, -4, 1].

    ``forward(z)``, (N, D), returns ``log_prob`` (N,) and ``x`` (N, D). State: the flow's, or ``matrix`` and ``shift``.

    On Sampling with Approximate Transport Maps (Grenioux et al., 2023), arXiv 2302.04763.

    Differs from the authors' code in: they divide by the temperature twice, and so sample another law.
    """

    def __init__(
        self,
        flow: int | nn.Module,
        *,
        energy: str | Energy,
        temperature: float = 1.0,
        coefficients: Sequence[float] | None = None,
    ):
        super().__init__()
        self.temperature = check.number(self, "temperature", temperature, 0.0, open_low=True)
        energy_of(self, energy, coefficients)
        self.energy, self.coefficients = energy, coefficients
        if isinstance(flow, nn.Module):
            self.flow: nn.Module | None = flow
            return
        self.flow = None
        self.dim = check.size(self, "flow", flow)
        self.matrix = nn.Parameter(torch.eye(self.dim))
        self.shift = nn.Parameter(torch.zeros(self.dim))

    def forward(self, z: Tensor) -> Pulled:
        """Return the log density of latents (N, D), and the points that they stand for."""
        wide = reals(self, "z", z, (None, None if self.flow is not None else self.dim))
        x, log_det = self._affine(wide) if self.flow is None else back(self.flow, wide)
        log_prob = log_det - energy_of(self, self.energy, self.coefficients)(x) / self.temperature
        return Pulled(log_prob.to(z.dtype), x.to(z.dtype))

    def _affine(self, z: Tensor) -> tuple[Tensor, Tensor]:
        matrix = accurate(self.matrix).to(z.dtype)
        return z @ matrix.mT + self.shift.to(z.dtype), torch.linalg.slogdet(matrix)[1]
