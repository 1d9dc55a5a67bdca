"""Batches of positive definite matrices normalized as elements of a Lie group."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.manifold import _symmetric
from normkit.manifold._definite import EXEMPT, DefiniteNorm, geodesic
from normkit.statistics import accurate, full_precision

METRICS = ("AIM", "LEM", "LCM")
ROUNDED = "rounded, these are no positive definite matrices"


@method(
    "liebn",
    paper="A Lie Group Approach to Riemannian Batch Normalization (Chen et al., 2024), ICLR, arXiv 2403.11261",
    shape="N C C : definite",
    over="N",
    exempt=EXEMPT
    | {"turned": "factors of Cholesky do not turn with their matrix; eigenvalues of the result stay"}
    | {f"extremes offset {dtype}": ROUNDED for dtype in ("bfloat16", "float16")},
)
class LieBN(DefiniteNorm):
    """Give a batch of positive definite matrices a learned mean and variance, under one of three group structures.

    For networks on covariance matrices: as in BatchNorm, center, divide by the deviation, multiply, add, each in the
    sense of the group. On ill-conditioned matrices take ``gbw-batchnorm``.

    Under ``"LEM"`` matrices are added by their logarithms, under ``"LCM"`` by their Cholesky factors with the logarithm
    on the diagonal; under ``"AIM"`` with mean L Lᵀ and weight R Rᵀ,

        c = L⁻¹ x L⁻ᵀ,    v = mean (alpha |log c|^2 + beta (tr log c)^2) / theta^2
        y = R c^(scale / sqrt(v + eps)) Rᵀ

    Mean and variance are constants for the gradient.

    Args:
        n: size of the matrices.
        metric: ``"AIM"`` (affine-invariant), ``"LEM"`` (log-Euclidean) or ``"LCM"`` (log-Cholesky).
        theta: of AIM and LCM: the power that matrices are first raised to; not 0.
        alpha, beta: of the variance; alpha > 0 and beta > -alpha / n.
        momentum: share of the new batch in the running estimates.
        eps: added to the variance.
        channels: for an input (N, channels, n, n), with statistics and parameters a channel each.
        karcher_steps: of AIM, from the arithmetic mean to the geometric one.
        sync: take statistics over all processes.
        process_group: the processes to join, default all.

    State: ``weight`` and ``running_mean`` (n, n) or (channels, n, n), identities at the start, the mean in the chart of
    the metric; ``scale`` and ``running_var`` (1,) or (channels,). With one Karcher step the mean of AIM is near the
    geometric one. Under AIM and LEM an eigenvalue below 1e-7 counts as 1e-7, and under LEM in float32 one below 1e-4 as
    1e-4, as in the authors' code: scale matrices of smaller ones, such as covariances of volts.

    A Lie Group Approach to Riemannian Batch Normalization (Chen et al., 2024), arXiv 2403.11261. The gradient reaches
    ``scale`` under AIM, as in the authors' first code.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        n: int,
        *,
        metric: str = "AIM",
        theta: float = 1.0,
        alpha: float = 1.0,
        beta: float = 0.0,
        momentum: float = 0.1,
        eps: float = 1e-5,
        channels: int | None = None,
        karcher_steps: int = 1,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(n, momentum, sync, process_group)
        self.metric = check.choice(self, "metric", metric, METRICS)
        self.theta = check.number(self, "theta", theta, -check.LARGEST, check.LARGEST)
        if theta == 0:
            raise ValueError("LieBN: theta must not be 0")
        self.alpha = check.number(self, "alpha", alpha, 0.0, open_low=True)
        self.beta = check.number(self, "beta", beta, -alpha / n, open_low=True)
        self.eps = check.eps(self, eps)
        self.channels = None if channels is None else check.size(self, "channels", channels)
        self.karcher_steps = check.size(self, "karcher_steps", karcher_steps, least=0, most=1000)
        start = torch.eye(n) if channels is None else torch.eye(n).repeat(channels, 1, 1)
        self.weight = nn.Parameter(start)
        self.scale = nn.Parameter(torch.ones(channels or 1))
        self.keep(running_mean=start.clone(), running_var=torch.ones(channels or 1))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training by its own statistics, which move the running ones."""
        wide = self._matrices(x, (3,) if self.channels is None else (4,))
        if self.channels is not None and x.shape[1] != self.channels:
            raise ValueError(f"LieBN: x must have {self.channels} channels, but its shape is {tuple(x.shape)}")
        with full_precision(x):
            if self.metric == "AIM" and x.device.type != "mps":  # what two congruences leave of 24 bits is too few
                wide = wide.double()
            try:
                points = self._chart(wide)
            except torch.linalg.LinAlgError as error:  # only the chart of LCM takes a factor
                raise ValueError(
                    "LieBN: x must hold matrices without an eigenvalue of 0 under metric='LCM'; add a small "
                    "multiple of the identity, or take 'AIM' or 'LEM'"
                ) from error
            weight = self._chart(self._parameter("weight", wide.dtype, clamped=self.metric == "LEM"))
            output = self._normalize(points, weight)
            return self._back(output).to(x.dtype)

    def _normalize(self, points: Tensor, weight: Tensor) -> Tensor:
        mean = self._batch_mean(points.detach()) if self.training else accurate(self.running_mean).to(points.dtype)
        centered = self._center(points, mean)
        of = _symmetric.spectrum(centered).above_least() if self.metric == "AIM" else None
        if self.training:
            tangent = centered.detach() if of is None else _symmetric.log(of.still(), _symmetric.least)
            var, count = self._batch_var(tangent)
            self._keep_moments(count, mean, var)
        else:
            var = accurate(self.running_var)
        factor = accurate(self.scale) / (var + self.eps).sqrt()
        if of is None:
            return factor.unsqueeze(-1).unsqueeze(-1) * centered + weight
        root = ops.cholesky(weight)
        return root @ _symmetric.power(of, factor.unsqueeze(-1)) @ root.mT

    def _chart(self, x: Tensor) -> Tensor:
        """What a matrix is in the chart of the metric."""
        if self.metric == "LEM":
            return _symmetric.log(x, _symmetric.least)
        x = x if self.theta == 1 else _symmetric.power(x, self.theta)
        if self.metric == "AIM":
            return x
        return ops.log_cholesky(x)

    def _back(self, y: Tensor) -> Tensor:
        """The matrix that a chart shows."""
        if self.metric == "LEM":
            return _symmetric.exp(_symmetric.symmetric(y))
        y = ops.from_log_cholesky(y) if self.metric == "LCM" else _symmetric.symmetric(y)
        return y if self.theta == 1 else _symmetric.power(y, 1 / self.theta)

    @torch.no_grad()
    def _batch_mean(self, points: Tensor) -> Tensor:
        mean = self._mean(points)
        for _ in range(self.karcher_steps if self.metric == "AIM" else 0):
            mean = self._karcher(points, mean, _symmetric.least)
        return mean

    def _center(self, points: Tensor, mean: Tensor) -> Tensor:
        if self.metric != "AIM":
            return points - mean
        factor = ops.cholesky(mean)
        left = torch.linalg.solve_triangular(factor, points, upper=False)
        return _symmetric.symmetric(torch.linalg.solve_triangular(factor, left.mT, upper=False))

    @torch.no_grad()
    def _batch_var(self, tangent: Tensor) -> tuple[Tensor, Tensor]:
        """The variance, and of how many samples it is."""
        trace = tangent.diagonal(0, -2, -1).sum(-1)
        each = self.alpha * tangent.square().sum((-2, -1)) + self.beta * trace.square()
        mean, count = self._mean_and_count(each)
        return (mean / (1 if self.metric == "LEM" else self.theta**2)).reshape(self.scale.shape), count

    def _keep_moments(self, count: Tensor, mean: Tensor, var: Tensor) -> None:
        if self.metric != "AIM":
            self.move(count, running_mean=mean, running_var=var)
            return
        self.move(count, running_var=var)
        self._follow(count, mean, geodesic(_symmetric.least))
