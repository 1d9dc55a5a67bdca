"""The effective learning rate of a weight that only has a direction."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate

NAME = "effective-learning-rate"


@method(
    NAME,
    paper="L2 Regularization versus Batch and Weight Normalization (van Laarhoven, 2017), arXiv 1706.05350",
    evidence="equations",
    shape="C I",
    over="C I",
    inputs={"grad": "C I"},
    example={"lr": 0.1, "weight_decay": 0.05},
    provenance="the paper's equations, and a simulation of the equilibrium",
)
def effective_learning_rate(
    weight: Tensor, grad: Tensor, *, lr: float, optimizer: str = "sgd", weight_decay: float = 0.0
) -> tuple[Tensor, ...]:
    """Return how fast a weight in front of a norm really learns.

    For the choice of learning rate and weight decay, which for such a weight act as one product: decay does not
    regularize it, it sets the size of its steps. With n the length of the weight,

        effective_lr = lr / n^2, or lr / n of ``"adam"``     relative_update = lr |grad| / n
        radial = <weight, grad> / (n |grad|)                 equilibrium_norm = (lr (|grad| n)^2 / (2 weight_decay))^1/4

    Relative update is the angle of a plain step; radial is 0 of a weight that really is followed by a norm, and the
    rest means nothing where it is not. The equilibrium is that of ``"sgd"``: there the relative update is
    sqrt(2 lr weight_decay).

    Args:
        weight, grad: a weight and its gradient, of one shape: one layer's with layer norm, one filter's with batch
            norm or weight norm.
        lr: the learning rate; with momentum lr / (1 - momentum).
        optimizer: ``"sgd"``, or ``"adam"`` for all whose step does not depend on the gradient's size.
        weight_decay: what times the weight is added to the gradient, twice the paper's lambda. Only where it is above
            0 the fourth result is there.

    L2 Regularization versus Batch and Weight Normalization (van Laarhoven, 2017), arXiv 1706.05350.
    """
    check.floating(NAME, weight, "weight")
    check.values(NAME, "grad", grad, weight.shape, weight)
    check.number(NAME, "lr", lr, 0.0)
    check.number(NAME, "weight_decay", weight_decay, 0.0)
    check.choice(NAME, "optimizer", optimizer, ("sgd", "adam"))
    w, g = accurate(weight), accurate(grad)
    n, slope = torch.linalg.vector_norm(w), torch.linalg.vector_norm(g)
    metrics = [lr / (n.square() if optimizer == "sgd" else n), lr * slope / n, (w * g).sum() / (n * slope)]
    if weight_decay:
        metrics.append((slope * n * math.sqrt(lr / (2 * weight_decay))).sqrt())
    return tuple(value.to(weight.dtype) for value in metrics)
