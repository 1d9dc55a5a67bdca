"""DELTA: entropy adaptation with renormalized batch statistics and weights against frequent classes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.inference._norms import (
    Names,
    entropies,
    gains_and_shifts,
    is_batch_norm,
    norms_of,
    replace_batch_norms,
    use_batch_statistics,
)
from normkit.inference.delta_tbr import DeltaTBR
from normkit.kinds import Adapter
from normkit.kinds.adapter import optimizer_builder
from normkit.kinds.guard import is_answer
from normkit.statistics import accurate

LOSSES = ("entropy", "cross-entropy")
SURE = 0.4  # the least probability of a label of one's own


@method(
    "delta",
    paper="DELTA: Degradation-Free Fully Test-Time Adaptation (Zhao et al., 2023), arXiv 2301.13018",
    shape="N C H W",
)
class DELTA(Adapter):
    """Adapt norms as Tent does, with running statistics of the stream, and rare classes weighing as much as others.

    For streams that are correlated or have rare classes. Batch norms become ``delta-tbr``.

    Let l be the loss of a sample and q_k the running frequency of class k. A sample that is predicted as k weighs 1 /
    q_k, scaled to a mean of 1 over the batch; the loss is the mean of the weighted l over the samples that are used.
    Then q = dot q + (1 - dot) mean softmax(logits).

    Args:
        model: any model with batch norms; it is taken over and changed.
        optimizer: "adam", "sgd", or a function of the parameters.
        lr: the learning rate.
        momentum: Adam's first beta, or that of SGD.
        renorm: replace batch norms; else they use the batch's statistics.
        prior: the share of the old running statistics.
        dot: the share of the old frequencies; None: no weights of classes.
        loss: "entropy", or "cross-entropy" with the model's own label, of samples whose largest probability is above
            0.4.
        entropy_weight: weigh each sample by exp(log(K) / 2 - entropy), and use those that weigh more than 1.
        norms: the names of the norms; None: all batch norms.
        guard: "off"; or, where the adaptation collapses, "stop" or "reset", as :class:`normkit.kinds.Guard` tells.

    It returns the logits from before the step. State: ``model``, ``class_frequency`` (K,), empty before the first
    batch.

    DELTA (Zhao et al., 2023), arXiv 2301.13018.
    """

    wants = "weight or bias of a batch norm"
    class_frequency: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Any = "sgd",
        lr: float = 2.5e-4,
        momentum: float = 0.9,
        renorm: bool = True,
        prior: float = 0.95,
        dot: float | None = 0.95,
        loss: str = "entropy",
        entropy_weight: bool = False,
        norms: Names = None,
        guard: str = "off",
    ):
        own = norms_of(self, model, is_batch_norm, norms)
        super().__init__(model, optimizer_builder(self, optimizer, lr=lr, momentum=momentum), guard)
        prior = check.number(self, "prior", prior, 0.0, 1.0)
        self.dot = None if dot is None else check.number(self, "dot", dot, 0.0, 1.0)
        self.loss, self.entropy_weight = check.choice(self, "loss", loss, LOSSES), bool(entropy_weight)
        if renorm:
            make = lambda norm: DeltaTBR(norm.num_features, prior=prior, eps=norm.eps)  # noqa: E731
            own = replace_batch_norms(self, model, own, make, moments=False)
            for norm in own.values():
                _forget_source(norm)
        self.train_only(gains_and_shifts(own))
        use_batch_statistics(part for part in model.modules() if not isinstance(part, DeltaTBR))
        self.register_buffer("class_frequency", torch.empty(0))

    def begin(self) -> None:
        """All classes are as frequent."""
        self.class_frequency = self.class_frequency.new_empty(0)

    def observe(self, x: Tensor) -> Tensor:
        """Predict ``x``, then learn from it."""
        logits = self.logits(self.model, x)
        wide = accurate(logits)
        p = torch.softmax(wide.detach(), 1)
        losses, weights, used = self._losses(wide, p)
        weights = weights * self._of_classes(p)
        if used.any():
            self.step(self.gradients((losses * weights)[used].mean()))
        elif not is_answer(wide):
            self._skip()
        if self.dot is not None and len(p) and bool(p.isfinite().all()):
            self.class_frequency = self.dot * self.class_frequency + (1 - self.dot) * p.mean(0)
        return logits

    def _losses(self, logits: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of each sample, its weight, and whether it is used."""
        unsure = entropies(logits)
        used, weights = torch.ones_like(unsure, dtype=torch.bool), torch.ones_like(unsure)
        if self.entropy_weight:
            weights = torch.exp(math.log(logits.shape[1]) / 2 - unsure.detach())
            used = weights > 1
        if self.loss == "entropy":
            return unsure, weights, used
        sureness, label = p.max(1)
        return F.cross_entropy(logits, label, reduction="none"), weights, used & (sureness > SURE)

    def _of_classes(self, p: Tensor) -> Tensor | float:
        if self.dot is None:
            return 1.0
        if not self.class_frequency.numel():
            self.class_frequency = p.new_full((p.shape[1],), 1 / p.shape[1])
        rare = 1 / self.class_frequency.to(p)[p.argmax(1)]
        return rare / rare.sum() * len(rare)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        saved = state_dict.get(f"{prefix}class_frequency")
        if isinstance(saved, Tensor):
            self.class_frequency = self.class_frequency.new_empty(saved.shape, dtype=saved.dtype)
        super()._load_from_state_dict(state_dict, prefix, *rest)


@torch.no_grad()
def _forget_source(norm: Any) -> None:
    """Let the first batch set the running values, as if no model had been trained."""
    norm.running_mean.zero_(), norm.running_std.fill_(1), norm.num_batches_tracked.zero_()
