"""Per-class gradient normalization: every class pulls equally hard."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate


@method(
    "per-class-gradient-normalization",
    paper="A Theoretical Analysis of the Learning Dynamics under Class Imbalance (Francazi et al., 2023), "
    "arXiv 2207.00391",
    evidence="equations",
    shape="N C",
    over="C",
    provenance="the paper's equations, in float64",
)
def per_class_gradient_normalization(class_grads: Tensor, *, reduction: str = "sum", eps: float = 1e-12) -> Tensor:
    """Give each class' gradient the length 1, then add them up.

    For data with rare classes, whose loss rises first while the common gradient goes the way of the large ones. It
    needs a backward pass a class. A class that a batch lacks adds nothing, so draw each class into each batch.

    With g_c the gradient, of all parameters in a row, of the loss of class c's samples alone,

        sum_c g_c / |g_c|,    or their mean

    Where |g_c| is at most eps the class adds nothing: one that is not in the batch has a gradient of 0. Whether a
    class' loss is a sum or a mean over its samples makes no difference. The paper's PCNGD has the whole data set in a
    batch and PCNSGD a part; its +O draws each class equally often into a batch, and its +R multiplies each class'
    direction by a factor that makes up for its noise.

    Args:
        class_grads: one flat gradient a class, (classes, parameters).
        reduction: ``"sum"``, or ``"mean"`` over all classes, those not in the batch included.
        eps: a length that counts as none.

    A Theoretical Analysis of the Learning Dynamics under Class Imbalance (Francazi et al., 2023), arXiv 2207.00391.
    """
    owner = "per-class-gradient-normalization"
    check.values(owner, "class_grads", class_grads, (None, None), class_grads)
    check.choice(owner, "reduction", reduction, ("sum", "mean"))
    eps = check.eps(owner, eps)
    wide = accurate(class_grads)
    length = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    mask = length > eps
    length = torch.linalg.vector_norm(torch.where(mask, wide, 1), dim=1, keepdim=True)
    total = torch.where(mask, wide / length, 0).sum(0)
    return (total / (len(wide) if reduction == "mean" else 1)).to(class_grads.dtype)
