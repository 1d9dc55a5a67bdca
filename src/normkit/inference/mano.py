"""MaNo: how good a classifier is under shift, told from its logits alone."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.inference._pit import fill
from normkit.inference._scores import scores


@method(
    "mano",
    paper="MaNo: Exploiting Matrix Norm for Unsupervised Accuracy Estimation Under Distribution Shifts (Xie et al., "
    "2024), arXiv 2405.18979",
    shape="N C",
    over="N C",
)
def mano(logits: Tensor, *, p: float = 4, criterion: float | str = 0.0, threshold: float = 5.0) -> Tensor:
    """Normalize logits row by row, and take the mean p-norm of all entries: it goes up with accuracy.

    For unlabeled data that have moved away from the training data; batches are averaged, and the authors leave batch
    norm in training mode. Where the criterion is above the threshold the rows o are a softmax, else, per row of
    logits l,

        u = 1 + l + l² / 2,   u - min u, over its sum (at least 1e-12);    score = (mean |o|^p)^(1/p)

    Args:
        logits: (N, C).
        p: of the norm.
        criterion: a number, or ``"auto"``: the batch's mean cross-entropy to equal shares of all classes.
        threshold: above which the softmax is taken.

    MaNo (Xie et al., 2024), arXiv 2405.18979.

    Differs from the authors' code in: ``"auto"``, whose function they have and do not call.
    """
    wide = scores("mano", "logits", logits, (None, None))
    fill("mano", "logits", logits)
    p, threshold = check.number("mano", "p", p, 0.0, open_low=True), check.number("mano", "threshold", threshold)
    level = -torch.log_softmax(wide, 1).mean() if criterion == "auto" else check.number("mano", "criterion", criterion)
    rows = torch.where(torch.as_tensor(level > threshold, device=wide.device), torch.softmax(wide, 1), _parabola(wide))
    return rows.abs().pow(p).mean().pow(1 / p).to(logits.dtype)


def _parabola(x: Tensor) -> Tensor:
    u = 1 + x + x.square() / 2
    u = u - u.amin(1, keepdim=True)
    return u / u.sum(1, keepdim=True).clamp(min=1e-12)
