"""DRM's loss at test time: heads tuned on their own confident predictions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.inference.drm_ensemble import heads, weigh

LABELS = ("own", "last", "uniform", "drm")
NAME = "drm-adaptation-loss"


@method(
    NAME,
    paper="Domain-Specific Risk Minimization for Out-of-Distribution Generalization (Zhang et al., 2023), arXiv "
    "2208.08661",
    shape="S N C",
    over="C",
    invariant=("shift",),
)
def drm_adaptation_loss(logits: Tensor, *, label: str = "own", threshold: float = 0.25, gamma: float = 1.0) -> Tensor:
    """Sum over heads the cross-entropy to pseudo-labels, on the samples whose label is sure enough.

    For adapting the heads of ``drm-loss`` to test data of a new domain while the features stay as they are. With many
    classes the labels ``"uniform"`` and ``"drm"`` are never sure enough: take ``"own"``. For a model with one head take
    ``tent``.

    One or more steps on the heads alone for each test batch; what is returned to the user is ``drm-ensemble`` before
    the step. The label is the arg max, and its sureness the maximum, of

        own     the head's own softmax              uniform  softmax(mean of the heads' softmaxes)
        last    the shared head's softmax           drm      softmax(the ensemble)

    The last two are a softmax of probabilities, as the authors have it: with C classes never surer than
    e / (e + C - 1), 0.31 for seven. A head without sure samples adds nothing.

    Args:
        logits: of the heads, the shared one last, (H, N, C).
        label: whose label.
        threshold: the least sureness; above 1 nothing is adapted.
        gamma: the power of the ensemble.

    Labels carry no gradient. Domain-Specific Risk Minimization (Zhang et al., 2023), arXiv 2208.08661.
    """
    wide = heads(NAME, logits)
    check.choice(NAME, "label", label, LABELS)
    threshold, gamma = check.number(NAME, "threshold", threshold), check.number(NAME, "gamma", gamma)
    sure, labels = _labels(wide.detach(), label, gamma).max(2)
    losses = F.cross_entropy(wide.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
    kept = sure >= threshold
    return (torch.where(kept, losses, 0).sum(1) / kept.sum(1).clamp(min=1)).sum().to(logits.dtype)


def _labels(logits: Tensor, label: str, gamma: float) -> Tensor:
    """The probabilities (H, N, C) that labels are taken from."""
    p = torch.softmax(logits, 2)
    if label == "own":
        return p
    if label == "last":
        return p[-1].expand_as(p)
    return (p.mean(0) if label == "uniform" else weigh(logits, gamma)).softmax(1).expand_as(p)
