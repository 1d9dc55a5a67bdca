"""Path gradients: the divergence of a flow and a target, without the noise of the score."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.density._inputs import Energy, energy_of, force, gaussian
from normkit.kinds import Loss
from normkit.statistics import reals

ESTIMATORS = ("path", "reparametrised", "forward-path")
PATH = "the gradient is the path estimator's, which is the loss' own on average alone"


@method(
    "path-gradient-loss",
    paper="Fast and Unified Path Gradient Estimators for Normalizing Flows (Vaitl et al., 2024), arXiv 2403.15881",
    shape="N C",
    exempt={"gradcheck": PATH, "higher-derivatives": PATH},
)
class PathGradientLoss(Loss):
    """Estimate the divergence of a flow and a target, with a gradient that vanishes where they are one.

    For training a flow on an energy, also with samples of the target, where the noise of gradients keeps it from
    settling. From samples of its own a flow does not learn of modes that it misses: use ``"forward-path"`` where the
    target's are there. Without an energy take ``conditional-flow-matching``.

    With q the flow's density, u the energy, x = g(z) the flow's sample and h = d mean(u + log q) / dx at x held still,

        reparametrised  mean(u(x) + log q(x)),   with its own gradient
        path            mean(u(x) + log q(x)),   with the gradient of sum <g(z), h>
        forward-path    mean(-log q(x) - u(x)),  with the gradient of sum <g(z), h>, z = f(x) held still

    Args:
        dim: D.
        estimator: one of the above; the first two take samples of the base, "forward-path" of the target.
        energy: a callable (N, D) -> (N,), or ``"double-well"``, which None is: a d + b d^2 + c d^4 + |rest|^2 / 2 with
            d the first coordinate.
        coefficients: [a, b, c] of the double well; None: [0, -4, 1].
        flow: a transform from data to latents with ``inverse`` and ``log_prob``; None: a small one,
            x = z exp(log_scale) + shift, then x_b += weight tanh(x_a) with a the first D // 2 coordinates.

    ``loss(samples)``, (N, D), is a single number. State: the flow's, or ``shift``, ``log_scale`` and ``weight``.

    Fast and Unified Path Gradient Estimators (Vaitl et al., 2024), arXiv 2403.15881.

    Differs from the authors' code in: the gradient at x takes a second pass through the flow, where theirs is carried
    along the first.
    """

    def __init__(
        self,
        dim: int,
        *,
        estimator: str = "path",
        energy: str | Energy | None = None,
        coefficients: Sequence[float] | None = None,
        flow: nn.Module | None = None,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim, least=2)
        self.estimator = check.choice(self, "estimator", estimator, ESTIMATORS)
        self.energy, self.coefficients = "double-well" if energy is None else energy, coefficients
        energy_of(self, self.energy, coefficients)
        self.flow = flow
        if flow is None:
            known = dim // 2
            self.shift, self.log_scale = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))
            self.weight = nn.Parameter(torch.zeros(dim - known, known))

    def forward(self, samples: Tensor) -> Tensor:
        """Return the divergence at samples (N, D), a single number."""
        points = reals(self, "samples", samples, (None, self.dim))
        energy = energy_of(self, self.energy, self.coefficients)
        if self.estimator == "reparametrised":
            x, log_q = self._sample(points)
            return (energy(x) + log_q).mean().to(samples.dtype)

        ahead = self.estimator == "forward-path"
        z = self._latent(points).detach() if ahead else points
        drawn = self._sample(z)[0]
        x = (points if ahead else drawn).detach()
        value = (energy(x) + self._log_prob(x)).mean().detach()
        pulled = (drawn * self._slope(energy, x).detach()).sum()
        return ((-value if ahead else value) + pulled - pulled.detach()).to(samples.dtype)

    def _slope(self, energy: Energy, x: Tensor) -> Tensor:
        """The gradient of mean(u + log q) at x."""
        if self.flow is not None:
            return torch.func.grad(lambda x: (energy(x) + self._log_prob(x)).mean())(x)
        score = -self._latent(x) * (-self.log_scale.to(x.dtype)).exp()
        known = self.dim // 2
        bent = (1 - x[:, :known].tanh().square()) * (score[:, known:] @ self.weight.to(x.dtype))
        score = torch.cat([score[:, :known] - bent, score[:, known:]], 1)
        return (score - force(energy, x)) / len(x)

    def _sample(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The flow's sample, and its log density."""
        base = gaussian(z, 0.0, 1.0)
        if self.flow is not None:
            sample = self.flow.inverse(z)  # type: ignore[operator]
            return (sample[0], base - sample[1]) if isinstance(sample, tuple) else (sample, self._log_prob(sample))
        x = z * self.log_scale.to(z.dtype).exp() + self.shift.to(z.dtype)
        a, b = x.tensor_split([self.dim // 2], 1)
        bent = torch.cat([a, b + a.tanh() @ self.weight.to(z.dtype).mT], 1)
        return bent, base - self.log_scale.to(z.dtype).sum()

    def _latent(self, x: Tensor) -> Tensor:
        if self.flow is not None:
            return self.flow(x)[0]
        a, b = x.tensor_split([self.dim // 2], 1)
        straight = torch.cat([a, b - a.tanh() @ self.weight.to(x.dtype).mT], 1)
        return (straight - self.shift.to(x.dtype)) * (-self.log_scale.to(x.dtype)).exp()

    def _log_prob(self, x: Tensor) -> Tensor:
        if self.flow is not None:
            return self.flow.log_prob(x)  # type: ignore[operator]
        return gaussian(self._latent(x), 0.0, 1.0) - self.log_scale.to(x.dtype).sum()
