"""Sinkhorn's normalization: rows and columns of small positive matrices in turn.

The C kernel has all steps of a matrix in one lane, in double; its backward pass keeps nothing but the scores.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.kernels import special
from normkit.kernels.cuda import settings
from normkit.ops import eager, trial
from normkit.statistics import accurate

__all__ = ["sinkhorn"]


def sinkhorn(scores: Tensor, iterations: int = 20, eps: float = 1e-6) -> Tensor:
    """Return nearly doubly stochastic matrices (..., n, n) of ``scores``, whose gradient goes through all iterations.

    A softmax over each row, plus eps; then each column, and ``iterations - 1`` times each row and each column, is
    divided by its sum plus eps. So columns sum to 1 up to eps, rows as far as the iterations have converged. Half
    precision is rounded once, at the end.

    >>> sinkhorn(torch.tensor([[0.0, 1.0], [2.0, 0.0]])).sum(-2)
    tensor([1.0000, 1.0000])
    """
    check.floating("sinkhorn", scores)
    if scores.dim() < 2 or scores.shape[-1] != scores.shape[-2]:
        raise ValueError(f"sinkhorn: scores must be (..., n, n), but their shape is {tuple(scores.shape)}")
    rounds, eps = check.size("sinkhorn", "iterations", iterations), check.eps("sinkhorn", eps)
    x = accurate(scores)
    x = x.unsqueeze(0) if x.dim() == 2 else x
    if eager.runs_formula("sinkhorn", lambda: _against(x, rounds), x, kind=(rounds, eps)):
        matrices = _formula(x, rounds, eps)
    elif eager.needs_grad(x):
        matrices = _Sinkhorn.apply(x, rounds, eps)
    else:
        matrices = _forward(x, rounds, eps)
    return matrices.to(scores.dtype).view(scores.shape)


@trial.call("sinkhorn", lambda kind: 2)
def _tried(kind: tuple[int, float], tensors: list) -> Tensor:
    (scores,) = tensors
    return sinkhorn(scores, *kind)


def _formula(x: Tensor, rounds: int, eps: float) -> Tensor:
    m = torch.softmax(x, -1) + eps
    m = m / (m.sum(-2, keepdim=True) + eps)
    for _ in range(rounds - 1):
        m = m / (m.sum(-1, keepdim=True) + eps)
        m = m / (m.sum(-2, keepdim=True) + eps)
    return m


def _against(x: Tensor, rounds: int) -> str | None:
    """What is against the kernel, beside what is against all."""
    gpu = eager.on_gpu(x)
    most = settings.MOST_SIDE if gpu else special.MOST_SIDE
    if x.shape[-1] > most:
        return f"the kernel of Sinkhorn's steps takes matrices of up to {most} rows"
    if rounds > special.MOST_ROUNDS:
        return f"the kernel of Sinkhorn's steps takes up to {special.MOST_ROUNDS} iterations"
    return None if gpu else special.absent()


def _library(x: Tensor):
    return eager.library(x) if eager.on_gpu(x) else special.require()


def _plan(x: Tensor, rounds: int, eps: float) -> bytes:
    return special.SINKHORN.pack(eager.code(x), x.shape[-1], rounds, eps)


def _forward(x: Tensor, rounds: int, eps: float) -> Tensor:
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _library(x).sinkhorn(_plan(x, rounds, eps), math.prod(x.shape[:-2]), eager.pack(x), y)
    return y


class _Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, rounds: int, eps: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.about = rounds, eps
        return _forward(x, rounds, eps)

    @staticmethod
    def backward(ctx, sent: Tensor):
        (x,) = ctx.saved_tensors
        if eager.runs_formula("sinkhorn backward", eager.derived_again(), sent, x):
            return *eager.differentiate(_formula, (x,), ctx.about, sent, (True,)), None, None
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        plan, count = _plan(x, *ctx.about), math.prod(x.shape[:-2])
        _library(x).sinkhorn_backward(plan, count, eager.pack(x), eager.pack(sent), dx)
        return dx, None, None
