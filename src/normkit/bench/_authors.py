"""Norms of matrices as their authors compute them: plain PyTorch, a decomposition for each function of a matrix.

What the authors' code returns and sends back, without its running estimates.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Applied(torch.autograd.Function):
    """A power of positive definite matrices, with the derivative of Loewner."""

    @staticmethod
    def forward(ctx, s: Tensor, exponent: float) -> Tensor:
        """Return the power."""
        values, vectors = torch.linalg.eigh(s)
        image = values**exponent
        ctx.exponent = exponent
        ctx.save_for_backward(values, vectors, image)
        return vectors @ torch.diag_embed(image) @ vectors.mT

    @staticmethod
    def backward(ctx, sent: Tensor):
        """Return the gradient."""
        values, vectors, image = ctx.saved_tensors
        gap = values.unsqueeze(-1) - values.unsqueeze(-2)
        slope = ctx.exponent * values ** (ctx.exponent - 1)
        differences = (image.unsqueeze(-1) - image.unsqueeze(-2)) / torch.where(gap == 0, 1, gap)
        loewner = torch.where(gap == 0, slope.unsqueeze(-1), differences)
        return vectors @ (loewner * (vectors.mT @ sent @ vectors)) @ vectors.mT, None


def power(s: Tensor, exponent: float) -> Tensor:
    """Return a power of matrices, of their symmetric part."""
    return Applied.apply((s + s.mT) / 2, exponent)


class GBW(nn.Module):
    """Batch normalization under the generalized Bures-Wasserstein metric, in training."""

    def __init__(self, n: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.eye(n) + torch.diag(1e-7 * torch.arange(1, n + 1)))
        self.metric, self.scale = nn.Parameter(torch.eye(n)), nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize a batch."""
        eye = torch.eye(x.shape[-1], dtype=x.dtype)
        root, inverse = power(self.metric, 0.5), power(self.metric, -0.5)
        points, bias = inverse @ x @ inverse, inverse @ self.weight @ inverse
        with torch.no_grad():
            mean = self._mean(points)
            var = (_trace(points) + x.shape[-1] - 2 * _trace(power(points, 0.5))).mean()
        moved = eye + _transport(_log(mean, points), mean) / 2
        tangent = self.scale / (var + self.eps).sqrt() * (2 * power(moved @ moved, 0.5) - 2 * eye)
        scaled = eye + tangent / 2
        tangent = 2 * power(scaled @ scaled, 0.5) - 2 * eye
        return root @ _moved_to(bias, tangent) @ root

    def _mean(self, points: Tensor) -> Tensor:
        start = points.mean(0)
        root, inverse = power(start, 0.5), power(start, -0.5)
        middle = power(root @ points @ root, 0.5).mean(0)
        return inverse @ middle @ middle @ inverse


def _trace(x: Tensor) -> Tensor:
    return x.diagonal(0, -2, -1).sum(-1)


def _log(mean: Tensor, points: Tensor) -> Tensor:
    root, inverse = power(mean, 0.5), power(mean, -0.5)
    across = root @ power(root @ points @ root, 0.5) @ inverse
    return across + across.mT - 2 * mean


def _transport(tangent: Tensor, mean: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(mean)
    turned = vectors.mT @ tangent @ vectors
    return vectors @ (turned * (2 / (values.unsqueeze(-1) + values)).sqrt()) @ vectors.mT


def _moved_to(bias: Tensor, tangent: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(bias)
    both = values.unsqueeze(-1) + values
    turned = vectors.mT @ tangent @ vectors * (both / 2).sqrt()
    solved = vectors @ (turned / both) @ vectors.mT
    return bias + vectors @ turned @ vectors.mT + solved @ bias @ solved


class GyroGrassmann(nn.Module):
    """Batch normalization of subspaces by their gyro structure, with the authors' Cayley map, in training."""

    def __init__(self, n: int, p: int, eps: float = 1e-5):
        super().__init__()
        self.p, self.eps = p, eps
        self.bias, self.scale = nn.Parameter(torch.zeros(n - p, p)), nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize a batch (N, 1, n, p)."""
        with torch.no_grad():
            mean = x[0]
            mean = _frame_exp(mean, _frame_log(mean, x).mean(0))
            cosines = torch.linalg.svdvals(x.mT @ mean).clamp(max=1)
            var = cosines.arccos().square().sum(-1).mean()
        centered = _cayley(-_log_at_axes(mean)) @ x
        factor = self.scale / (var + self.eps).sqrt()
        scaled = _cayley(factor * _log_at_axes(centered))[..., : self.p]
        return _cayley(self.bias) @ scaled


def _angles(cosines: Tensor) -> Tensor:
    sines = (1 - cosines.clamp(0, 1).square()).sqrt()
    return torch.where(sines == 0, 1, sines.arcsin() / torch.where(sines == 0, 1, sines))


def _log_at_axes(x: Tensor) -> Tensor:
    p = x.shape[-1]
    q, s, rows = torch.linalg.svd(x[..., :p, :].mT)
    return x[..., p:, :] @ q @ torch.diag_embed(_angles(s)) @ rows


def _frame_log(base: Tensor, x: Tensor) -> Tensor:
    q, s, rows = torch.linalg.svd(x.mT @ base)
    turned = x @ q
    return (turned - base @ (base.mT @ turned)) @ torch.diag_embed(_angles(s)) @ rows


def _frame_exp(base: Tensor, tangent: Tensor) -> Tensor:
    q, s, rows = torch.linalg.svd(tangent, full_matrices=False)
    point = (base @ rows.mT @ torch.diag_embed(s.cos()) + q @ torch.diag_embed(s.sin())) @ rows
    frame, upper = torch.linalg.qr(point)
    return frame * upper.diagonal(0, -2, -1).sign().unsqueeze(-2)


def _cayley(tangent: Tensor) -> Tensor:
    low, p = tangent.shape[-2:]
    n = low + p
    turning = tangent.new_zeros(*tangent.shape[:-2], n, n)
    turning[..., p:, :p], turning[..., :p, p:] = tangent, -tangent.mT
    eye = torch.eye(n, dtype=tangent.dtype)
    return (eye - turning) @ torch.linalg.inv(eye + turning)
