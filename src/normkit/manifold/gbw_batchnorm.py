"""Batches of positive definite matrices normalized under the geometry of optimal transport."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.manifold import _symmetric
from normkit.manifold._definite import EXEMPT, DefiniteNorm
from normkit.statistics import accurate, full_precision


@method(
    "gbw-batchnorm",
    paper="Learning to Normalize on the SPD Manifold under Bures-Wasserstein Geometry (Wang et al., 2025), CVPR, "
    "arXiv 2504.00660",
    shape="N C C : definite",
    over="N",
    exempt=EXEMPT | {"spread": "the authors' variance is around the identity, not around the mean"},
)
class GBWBatchNorm(DefiniteNorm):
    """Give a batch of positive definite matrices a learned mean and variance under a learned Bures-Wasserstein metric.

    For ill-conditioned covariance matrices, on which the affine-invariant metric of ``riemannian-batchnorm`` and
    ``liebn`` is numerically hard.

    Matrices raised to ``power`` and turned by metric^(-1/2) on both sides are, in tangent spaces of the plain metric:
    centered by m, one fixed-point step from the arithmetic mean; moved to the identity; multiplied by scale / sqrt(v +
    eps), v the mean squared distance to the identity over power²; moved to the weight; and turned back. m and v are
    constants for the gradient.

    Args:
        n: size of the matrices.
        power: that matrices are first raised to; not 0.
        momentum: share of the new batch in the running estimates.
        eps: added to the variance.
        exact_gradient: False: that of the authors' code, which takes 1 / power for the power in the diagonal part of
            the first derivatives.
        sync: take statistics over all processes.
        process_group: the processes to join, default all.

    Input and output (N, n, n), or (N, h, n, n), of which all N h count alike. State: ``weight`` (n, n), nearly the
    identity, ``metric`` and ``running_mean`` (n, n), identities, ``scale`` and ``running_var`` (1,). Roots take an
    eigenvalue below 1e-7, and in float32 below 1e-4, for that number, as in the authors' code: scale matrices of
    smaller ones, such as covariances of volts.

    Learning to Normalize on the SPD Manifold under Bures-Wasserstein Geometry (Wang et al., 2025), arXiv 2504.00660.

    Differs from the authors' code in: the gradient for powers other than 1, unless ``exact_gradient=False``; the
    gradient at equal eigenvalues, which has a value; ``running_var`` is one number and no parameter.
    """

    points = ("weight", "metric")
    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        n: int,
        *,
        power: float = 1.0,
        momentum: float = 0.1,
        eps: float = 1e-5,
        exact_gradient: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(n, momentum, sync, process_group)
        self.power = check.number(self, "power", power, -check.LARGEST, check.LARGEST)
        if power == 0:
            raise ValueError("GBWBatchNorm: power must not be 0")
        self.eps = check.eps(self, eps)
        self.exact_gradient = bool(exact_gradient)
        self.weight = nn.Parameter(torch.eye(n) + torch.diag(1e-7 * torch.arange(1, n + 1)))
        self.metric = nn.Parameter(torch.eye(n))
        self.scale = nn.Parameter(torch.ones(1))
        self.keep(running_mean=torch.eye(n), running_var=torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training by its own statistics, which move the running ones."""
        wide = self._matrices(x)
        with full_precision(x):
            metric = _symmetric.spectrum(self._parameter("metric", wide.dtype, clamped=True))
            root, inverse = _symmetric.sqrt(metric, _symmetric.least), _symmetric.rsqrt(metric, _symmetric.least)
            powered, weight = self._powered(wide), self._powered(self._parameter("weight", wide.dtype))
            mean, var = self._statistics(powered.detach(), inverse.detach())
            points = _symmetric.symmetric(inverse @ powered @ inverse)
            bias = _symmetric.symmetric(inverse @ weight @ inverse)
            factor = (accurate(self.scale) / (var + self.eps).sqrt()).to(wide.dtype)
            output = _bias(_root_at_identity(factor * 2 * _root_at_identity(_center(points, mean))), bias)
            output = _symmetric.symmetric(root @ output @ root)
            return (output if self.power == 1 else _symmetric.power(output, 1 / self.power)).to(x.dtype)

    def _powered(self, x: Tensor) -> Tensor:
        if self.power == 1:
            return x
        other = 1 / self.power
        return _symmetric.power(x, self.power, None if self.exact_gradient else lambda e: other * e ** (other - 1))

    def _statistics(self, powered: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
        """The mean, and the variance, of the batch or the running ones.

        Turned by the metric once more: with a gradient torch rounds the product otherwise, and so in checkpointing.
        """
        if not self.training:
            return accurate(self.running_mean).to(powered.dtype), accurate(self.running_var)
        with torch.no_grad():
            flat = _symmetric.symmetric(inverse @ powered.flatten(0, -3) @ inverse)
            mean = self._batch_mean(flat)
            distances = _trace(flat) + self.n - 2 * _symmetric.eigenvalues(flat).sqrt().sum(-1)
            square, count = self._mean_and_count(distances)
            var = (square / self.power**2).reshape(1)
            self._follow(count, mean, _geodesic)
            self.move(count, running_var=var)
        return mean, var

    def _batch_mean(self, points: Tensor) -> Tensor:
        start = _symmetric.spectrum(self._mean(points))
        root, inverse = _symmetric.sqrt(start, _symmetric.least), _symmetric.rsqrt(start, _symmetric.least)
        middle = self._mean(_symmetric.sqrt(_symmetric.symmetric(root @ points @ root), _symmetric.least))
        return _symmetric.symmetric(inverse @ middle @ middle @ inverse)


def _geodesic(running: Tensor, mean: Tensor, rate: float) -> Tensor:
    """The point at ``rate`` of the geodesic from a running mean to that of a batch."""
    start = _symmetric.symmetric(running.to(mean.dtype))
    across = _across(start, mean)
    return (1 - rate) ** 2 * start + rate**2 * mean + rate * (1 - rate) * (across + across.mT)


def _trace(x: Tensor) -> Tensor:
    return x.diagonal(0, -2, -1).sum(-1)


def _root_at_identity(tangent: Tensor) -> Tensor:
    """Half the logarithm of the exponential of a tangent vector T at the identity, which is (I + T / 2)^2.

    That is T / 2 again where I + T / 2 is positive definite, which takes no decomposition to see; elsewhere the root is
    another.
    """
    half = _symmetric.symmetric(tangent) / 2
    root = _symmetric.eye(half) + half
    if _symmetric.is_above_least(root):
        return half
    return _symmetric.sqrt(_symmetric.symmetric(root @ root), _symmetric.least) - _symmetric.eye(half)


def _across(start: Tensor, end: Tensor) -> Tensor:
    """The root of the product of two matrices."""
    of = _symmetric.spectrum(start)
    root, inverse = _symmetric.sqrt(of, _symmetric.least), _symmetric.rsqrt(of, _symmetric.least)
    return root @ _symmetric.sqrt(_symmetric.symmetric(root @ end @ root), _symmetric.least) @ inverse


def _center(points: Tensor, mean: Tensor) -> Tensor:
    """The tangent vectors at the identity that points are at once ``mean``, a constant, is moved there."""
    values, vectors = ops.eigh(_symmetric.symmetric(mean))
    values = values.clamp(min=_symmetric.LEAST[values.dtype])
    across = _across(_symmetric.symmetric(mean), points)
    tangent = vectors.mT @ (across + across.mT - 2 * mean) @ vectors
    tangent = tangent * (2 / (values.unsqueeze(-1) + values.unsqueeze(-2))).sqrt()
    return vectors @ tangent @ vectors.mT


def _bias(half: Tensor, bias: Tensor) -> Tensor:
    """Points moved so that the identity goes to ``bias``; ``half`` is the root of each, less the identity.

    In the basis of the bias the transport multiplies by the root of the mean of two eigenvalues, and the exponential
    map divides by their sum; how both change with the bias is written with ``moved``, so that equal eigenvalues do no
    harm.
    """
    values, vectors, moved, _ = _symmetric.spectrum(bias)
    both = values.unsqueeze(-1) + values.unsqueeze(-2)
    roots = (both / 2).sqrt()
    tangent = vectors.mT @ (2 * half) @ vectors
    slopes = 0.5 / (roots.unsqueeze(-2) + roots.unsqueeze(-3))  # at (i, k, j): of roots (i, j) and (k, j)
    turned = torch.einsum("ikj,...kj->...ij", moved.unsqueeze(-1) * slopes, tangent)
    carried = roots * tangent + turned + turned.mT
    half = carried / both
    half = (carried - moved @ half - half @ moved) / both
    inner = torch.diag(values) + moved
    return _symmetric.symmetric(vectors @ (inner + carried + half @ inner @ half) @ vectors.mT)
