"""Gradient-normalized smoothness: Newton steps, damped by the length of the gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Estimator

Function = Callable[[Tensor], Tensor]
RIDGE = 0.005  # of the squared length, in logistic()
TRIES = 40


@method(
    "gradient-normalized-smoothness",
    paper="Gradient-Normalized Smoothness for Optimization with Approximate Hessians (Semenov et al., 2025), "
    "arXiv 2506.13710",
    shape="N C",
)
class GradientNormalizedSmoothness(Estimator):
    """Take Newton's step, its matrix raised by the length of the gradient over a number that is searched for.

    For small problems in full batches, such as logistic regression, whose smoothness is not known; it has the best
    known rate of many classes of it. Each try solves a system as large as the parameters. For a network, or without a
    Hessian, take ``normalized-gd``.

    From x, with g the gradient and H the Hessian or anything near it,

        lambda = |g| / (gamma + eps),    y = x - (H + lambda I)^-1 g
        accepted where f(x) - f(y) >= |g(y)|^2 / (8 lambda): gamma doubles; else gamma is halved and y tried anew

    at most 40 times. Not ``adaptive``: always accepted, gamma stays.

    Args:
        gamma: where the search starts.
        adaptive: search for it.
        steps: how many.
        hessian: of :meth:`logistic`: ``"exact"``, ``"fisher"``, squared gradients of the samples, or ``"zero"``.
        eps: added to gamma.
        gamma_min: the least gamma after a step.

    ``solver.logistic(features, labels, x0)`` and ``solver.minimize(func, grad, hess, x0)`` return the iterates
    (steps + 1, d) and the gammas (steps + 1,), the start included; :meth:`minimize` stops where |g| is below ``tol``.

    Gradient-Normalized Smoothness (Semenov et al., 2025), arXiv 2506.13710.
    """

    def __init__(
        self,
        gamma: float = 1.0,
        adaptive: bool = True,
        steps: int = 10,
        hessian: str = "exact",
        eps: float = 1e-8,
        gamma_min: float = 1e-9,
    ):
        self.gamma = check.number(self, "gamma", gamma, 0.0)
        self.adaptive = bool(adaptive)
        self.steps = check.size(self, "steps", steps, least=0)
        self.hessian = check.choice(self, "hessian", hessian, ("exact", "fisher", "zero"))
        self.eps = check.eps(self, eps)
        self.gamma_min = check.eps(self, gamma_min, "gamma_min")

    @torch.no_grad()
    def minimize(
        self, func: Function, grad: Function, hess: Function, x0: Tensor, tol: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """Minimize ``func`` from ``x0`` (d,); ``hess`` returns any symmetric matrix (d, d)."""
        check.values(self, "x0", x0, (None,), x0)
        x, gamma = x0.clone(), self.gamma
        xs, gammas = [x], [gamma]
        for _ in range(self.steps):
            if tol is not None and grad(x).norm() < tol:
                break
            x, gamma = self._step(func, grad, hess, x, gamma)
            xs.append(x)
            gammas.append(gamma)
        return torch.stack(xs), x0.new_tensor(gammas)

    def _step(self, func: Function, grad: Function, hess: Function, x: Tensor, gamma: float) -> tuple[Tensor, float]:
        g, h, y = grad(x), hess(x), x
        for _ in range(TRIES):
            damping = float(g.norm()) / (gamma + self.eps)
            factor, failed = torch.linalg.cholesky_ex(h + damping * torch.eye(len(x), dtype=x.dtype, device=x.device))
            if failed:
                return y, gamma
            y = x - torch.cholesky_solve(g[:, None], factor)[:, 0]
            if not self.adaptive:
                return y, gamma
            if 8 * damping * (func(x) - func(y)) >= grad(y).square().sum():
                return y, max(2 * gamma, self.gamma_min)
            gamma /= 2
        return y, gamma

    def logistic(self, features: Tensor, labels: Tensor, x0: Tensor) -> tuple[Tensor, Tensor]:
        """Minimize mean_i log(1 + exp(-y_i <a_i, x>)) + 0.005 |x|^2, labels of -1 and 1."""
        check.values(self, "features", features, (None, None), features)
        check.values(self, "labels", labels, features.shape[:1], features)
        check.values(self, "x0", x0, features.shape[1:], features)
        signed = labels[:, None] * features

        def func(x: Tensor) -> Tensor:
            return F.softplus(-signed @ x).mean() + RIDGE * x.square().sum()

        def grad(x: Tensor) -> Tensor:
            return -(torch.sigmoid(-signed @ x) @ signed) / len(signed) + 2 * RIDGE * x

        def hess(x: Tensor) -> Tensor:
            p = torch.sigmoid(-signed @ x)
            weight = {"exact": p * (1 - p), "fisher": p.square(), "zero": torch.zeros_like(p)}[self.hessian]
            ridge = 0.0 if self.hessian == "zero" else 2 * RIDGE
            return signed.mT * weight @ signed / len(signed) + ridge * torch.eye(len(x), dtype=x.dtype, device=x.device)

        return self.minimize(func, grad, hess, x0)
