"""STORM's meta loss: what weights of a batch do to a classifier that learns from it, in its smallest form."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.loss.storm_loss import rescale
from normkit.ops.derivatives import under_transform
from normkit.statistics import accurate, full_precision


@method(
    "storm-meta-loss",
    paper="Learning from Noisy Labels via Self-Taught On-the-Fly Meta Loss Rescaling (Heck et al., 2025), "
    "arXiv 2412.12955",
    evidence="equations",
    shape="K C",
    over="N",
    inputs={
        "x": "2 N C",
        "target": "2 N : index K",
        "weights": "2 N : unit",
        "x_meta": "5 C",
        "target_meta": "5 : index K",
        "weights_meta": "5 : unit",
    },
    example={"lr": 0.1},
)
def storm_meta_loss(
    weight: Tensor,
    x: Tensor,
    target: Tensor,
    weights: Tensor,
    x_meta: Tensor,
    target_meta: Tensor,
    weights_meta: Tensor,
    *,
    lr: float,
    normalize: bool = True,
) -> Tensor:
    """Step a linear classifier on weighted losses, and return its weighted loss on another batch.

    For teaching ``storm-rescaler`` without clean data, on a linear classifier. A deep network needs inner steps of its
    own, such as by ``torch.func.functional_call``.

    A second batch of the same noisy data judges the classifier after the steps, and the gradient goes back through
    these to the weights. With l the cross-entropies of logits x Wᵀ, and T the sum of ``storm-loss``, or the mean of l w
    without ``normalize``,

        W <- W - lr dT(l(x_r), w_r) / dW     for r = 1 .. R,     result T(l(x_meta), w_meta)

    Args:
        weight: W of the classifier, (C, D).
        x, target, weights: batches of R steps, (R, N, D), int64 (R, N) and (R, N).
        x_meta, target_meta, weights_meta: the batch that judges, (M, D), int64 (M,) and (M,).
        lr: the step size.
        normalize: as of ``storm-loss``.

    STORM (Heck et al., 2025), arXiv 2412.12955.
    """
    owner = "storm-meta-loss"
    classes, features = _sizes(owner, weight)
    check.values(owner, "x", x, (None, None, features), weight)
    check.values(owner, "x_meta", x_meta, (None, features), weight)
    for name, labels, shares, rows in (("", target, weights, x), ("_meta", target_meta, weights_meta, x_meta)):
        check.index(owner, f"target{name}", labels, rows.shape[:-1], classes, weight)
        check.values(owner, f"weights{name}", shares, rows.shape[:-1], weight)
    lr = check.number(owner, "lr", lr, 0.0)
    check.choice(owner, "normalize", normalize, (True, False))
    now = accurate(weight)
    steps = zip(accurate(x).to(now.dtype), target, accurate(weights).to(now.dtype), strict=True)
    with full_precision(x):
        for rows, labels, shares in steps:
            now = now - lr * _gradient(now, rows, labels, shares, normalize)
        total = _total(now, accurate(x_meta).to(now.dtype), target_meta, accurate(weights_meta), normalize)
    return total.to(weight.dtype)


def _sizes(owner: str, weight: Tensor) -> tuple[int, int]:
    check.values(owner, "weight", weight, (None, None), weight)
    classes, features = weight.shape
    return classes, features


def _total(weight: Tensor, x: Tensor, target: Tensor, weights: Tensor, normalize: bool) -> Tensor:
    losses = rescale(F.cross_entropy(x @ weight.mT, target, reduction="none"), weights, normalize)
    return losses.sum() if normalize else losses.mean()


def _gradient(weight: Tensor, x: Tensor, target: Tensor, weights: Tensor, normalize: bool) -> Tensor:
    """The gradient of the total for the classifier, kept differentiable."""
    if under_transform():
        return torch.func.grad(_total)(weight, x, target, weights, normalize)
    with torch.enable_grad():  # not by that transform, which refuses the hooks of a checkpoint
        inner = weight if weight.requires_grad else weight.detach().requires_grad_()
        total = _total(inner, x, target, weights, normalize)
        return torch.autograd.grad(total, inner, create_graph=True)[0]
