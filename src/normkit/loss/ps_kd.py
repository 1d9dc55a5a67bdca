"""PS-KD: a classifier that learns from what it said an epoch ago."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.running import once, snapshot
from normkit.statistics import accurate


@method(
    "ps-kd",
    paper="Self-Knowledge Distillation with Progressive Refinement of Targets (Kim et al., 2021), arXiv 2006.12000",
    shape="N C",
    over="C",
    inputs={"target": "N : index C", "index": "N : permutation", "epoch": "1 : index 3"},
    example={"num_samples": 16, "num_classes": lambda classes: classes, "epochs": 3},
    invariant=("shift",),
)
class PSKD(Loss):
    """Mix each sample's label with the model's own prediction of it an epoch ago, ever more of it.

    For classifiers that should be better calibrated than by label smoothing, without a second model. It keeps a row of
    probabilities for each sample of a fixed training set. Where that table is too large or samples are seen once, take
    ``uskd``.

    With m the softmax that the sample had when it was last seen, and a = alpha (epoch + 1) / epochs,

        - mean sum_c ((1 - a) onehot_c + a m_c) log softmax(logits)_c

    In the first epoch m is the label itself. Then m becomes the new softmax. In evaluation: plain cross-entropy.

    Args:
        num_samples: of the training set.
        num_classes: C.
        epochs: how many there will be.
        alpha: the share of the prediction in the last one.

    ``loss(logits, target, index, epoch)``: (N, C), classes int64 (N,), the samples' places in the data set int64 (N,),
    and the epoch, from 0 to ``epochs`` - 1. State: ``memory`` (samples, C), to be saved with the model; a sample not
    seen in the first epoch has a row of zeros there, as in the authors' code.

    Self-Knowledge Distillation with Progressive Refinement of Targets (Kim et al., 2021), arXiv 2006.12000.
    """

    memory: Tensor

    def __init__(self, num_samples: int, num_classes: int, *, epochs: int, alpha: float = 0.8):
        super().__init__()
        self.num_samples = check.size(self, "num_samples", num_samples)
        self.num_classes = check.size(self, "num_classes", num_classes)
        self.epochs = check.size(self, "epochs", epochs)
        self.alpha = check.number(self, "alpha", alpha, 0.0, 1.0)
        self.register_buffer("memory", torch.zeros(num_samples, num_classes))

    def forward(self, logits: Tensor, target: Tensor, index: Tensor, epoch: int | Tensor) -> Tensor:
        """Return the loss, a single number; in training remember the predictions."""
        check.values(self, "logits", logits, (None, self.num_classes), logits)
        check.index(self, "target", target, logits.shape[:1], self.num_classes, logits)
        check.index(self, "index", index, logits.shape[:1], self.num_samples, logits)
        wide = accurate(logits)
        predicted = torch.log_softmax(wide, 1)
        soft_labels = torch.nn.functional.one_hot(target, self.num_classes).to(wide.dtype)
        if self.training:
            with once(self):
                soft_labels = self._mix(soft_labels, index, self._epoch(epoch, wide), predicted)
        return -(soft_labels * predicted).sum(1).mean().to(logits.dtype)

    def _epoch(self, epoch: int | Tensor, like: Tensor) -> Tensor:
        if not isinstance(epoch, Tensor):
            epoch = torch.tensor(check.size(self, "epoch", epoch, least=0, most=self.epochs - 1), device=like.device)
        check.index(self, "epoch", epoch, (1,) * epoch.dim(), self.epochs, like)
        return epoch.reshape(()).to(like.dtype)

    @torch.no_grad()
    def _mix(self, hard: Tensor, index: Tensor, epoch: Tensor, predicted: Tensor) -> Tensor:
        share = (self.alpha * (epoch + 1) / self.epochs).clamp(0, self.alpha)
        before = torch.where(epoch == 0, hard, snapshot(self.memory[index]).to(hard.dtype))
        self.memory[index] = predicted.exp().to(self.memory.dtype)
        return (1 - share) * hard + share * before
