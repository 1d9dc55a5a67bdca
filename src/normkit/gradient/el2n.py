"""EL2N: how far a prediction is from its label, as a measure of what a sample still teaches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate

PAPER = (
    "Deep Learning on a Data Diet: Finding Important Examples Early in Training (Paul et al., 2021), arXiv 2107.07075"
)


def _margins(error: Tensor, target: Tensor) -> Tensor:
    """How much more probable than the right class each other one is; the right one itself is left at minus infinity."""
    right = error.gather(1, target[:, None]) + 1
    return (error - right).scatter(1, target[:, None], -torch.inf)


SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "l2": lambda error, target: error.norm(dim=1),
    "l1": lambda error, target: error.abs().sum(1),
    "max_margin": lambda error, target: _margins(error, target).amax(1),
    "sum_margin": lambda error, target: (
        _margins(error, target).masked_fill(F.one_hot(target, error.shape[1]).bool(), 0).sum(1)
    ),
}


@method(
    "el2n",
    paper=PAPER,
    shape="N C",
    over="C",
    inputs={"target": "N : index C"},
    exempt={"gradcheck": "a score, not a loss: it has no gradient"},
)
@torch.no_grad()
def el2n(logits: Tensor, target: Tensor, *, score: str = "l2") -> Tensor:
    """Measure how far each sample's softmax is from its label.

    For pruning a data set: averaged over some ten networks after a few epochs of training (:func:`average`), the
    samples with the largest scores are those to keep. With p the softmax and y the one-hot label,

        "l2": |p - y|    "l1": sum |p - y|
        "max_margin", "sum_margin": the largest, and the sum, of p_j - p_target over the other classes j

    Args:
        logits: scores of the classes, (N, C), with norms in evaluation.
        target: the classes, int64 (N,).
        score: which of them.

    Deep Learning on a Data Diet (Paul et al., 2021), arXiv 2107.07075.
    """
    check.choice("el2n", "score", score, tuple(SCORES))
    return SCORES[score](error(el2n, logits, target), target).to(logits.dtype)


def error(owner: Callable, logits: Tensor, target: Tensor) -> Tensor:
    """The softmax less the one-hot label, which is the gradient of the cross-entropy at the logits."""
    name = owner.__name__
    check.values(name, "logits", logits, (None, None), logits)
    check.index(name, "target", target, logits.shape[:1], logits.shape[1], logits)
    wide = accurate(logits)
    return torch.softmax(wide, 1) - F.one_hot(target, logits.shape[1]).to(wide.dtype)


def average(scores: Sequence[Tensor]) -> Tensor:
    """Return the mean of the scores that several networks give the samples.

    >>> average([torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0])])
    tensor([0.5000, 1.0000])
    """
    return torch.stack(list(scores)).mean(0)
