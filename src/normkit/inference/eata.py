"""EATA: Tent on samples that are sure and new, held to the parameters that matter to the source."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.inference._norms import Names, entropies, gains_and_shifts, is_batch_norm, norms_of, use_batch_statistics
from normkit.kinds import Adapter
from normkit.kinds.adapter import optimizer_builder
from normkit.kinds.guard import is_answer
from normkit.parameters import for_gradients
from normkit.statistics import accurate


@method(
    "eata",
    paper="Efficient Test-Time Model Adaptation without Forgetting (Niu et al., 2022), arXiv 2204.02610",
    shape="N C H W",
    aliases=("eta-adaptation",),
)
class EATA(Adapter):
    """Train norms as Tent does, but on samples that are sure and unlike those before, and without forgetting.

    For long streams where Tent would unlearn the source. Where nothing of the source has to be kept, ``tent`` asks for
    less.

    With H the entropy of a sample and q the running mean of the probabilities p, samples stay where H < entropy_margin
    and cos(q, p) < similarity. The loss is their mean of exp(entropy_margin - H) H. Where :meth:`fisher` was called,
    ``fisher_alpha`` times the squared distance from the source parameters is added, each weighted by its importance F.
    Without samples there is no step.

    Args:
        model: any model with batch norms; it is taken over and changed.
        optimizer: "adam", "sgd", or a function of the parameters.
        lr: the learning rate.
        momentum: Adam's first beta, or that of SGD.
        entropy_margin: the least entropy that is unsure; None: 0.4 log K of K classes.
        similarity: the cosine from which a sample is not new; with few classes far above 0.05.
        fisher_alpha: the pull towards the source.
        steps: on each batch.
        norms: the names of the norms whose parameters are trained; None: all batch norms.
        guard: "off"; or, where the adaptation collapses, "stop" or "reset", as :class:`normkit.kinds.Guard` tells.

    Without :meth:`fisher` this is the paper's ETA. It returns the logits from before the step.

    Efficient Test-Time Model Adaptation without Forgetting (Niu et al., 2022), arXiv 2204.02610.
    """

    wants = "weight or bias of a batch norm"
    remembers = ("seen", "importance", "anchor")
    seen: Tensor | None
    importance: list[Tensor] | None
    anchor: list[Tensor] | None

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Any = "sgd",
        lr: float = 2.5e-4,
        momentum: float = 0.9,
        entropy_margin: float | None = None,
        similarity: float = 0.05,
        fisher_alpha: float = 2000.0,
        steps: int = 1,
        norms: Names = None,
        guard: str = "off",
    ):
        own = norms_of(self, model, is_batch_norm, norms)
        super().__init__(model, optimizer_builder(self, optimizer, lr=lr, momentum=momentum), guard)
        self.entropy_margin = None if entropy_margin is None else check.number(self, "entropy_margin", entropy_margin)
        self.similarity = check.number(self, "similarity", similarity, 0.0)
        self.fisher_alpha = check.number(self, "fisher_alpha", fisher_alpha, 0.0)
        self.steps = check.size(self, "steps", steps)
        self.train_only(gains_and_shifts(own))
        use_batch_statistics(model.modules())

    def begin(self) -> None:
        """Nothing was seen yet; what the source needs is kept over a reset."""
        self.seen = None
        self.importance, self.anchor = getattr(self, "importance", None), getattr(self, "anchor", None)

    @torch.inference_mode(False)
    @torch.enable_grad()
    def fisher(self, *batches: Tensor) -> None:
        """Measure on batches of the source how much each parameter matters, before adapting."""
        if not batches:
            raise ValueError(f"{type(self).__name__}: fisher needs at least one batch")
        self.start()
        parameters = self.parameters_trained()
        sums = [torch.zeros_like(accurate(p)) for p in parameters]
        for x in map(for_gradients, batches):
            logits = accurate(self.logits(self.model, x))
            for total, grad in zip(sums, self.gradients(F.cross_entropy(logits, logits.argmax(1))), strict=True):
                total += accurate(grad).square()
        self.importance = [total / len(batches) for total in sums]
        self.anchor = [p.detach().clone() for p in parameters]

    def observe(self, x: Tensor) -> Tensor:
        """Predict ``x``, then learn from its sure and new samples."""
        for _ in range(self.steps):
            logits = self.logits(self.model, x)
            wide = accurate(logits)
            margin = 0.4 * math.log(wide.shape[1]) if self.entropy_margin is None else self.entropy_margin
            unsure = entropies(wide)
            kept = self._new(unsure < margin, torch.softmax(wide.detach(), 1))
            if kept.any():
                weighted = torch.exp(margin - unsure[kept].detach()) * unsure[kept]
                self.step(self.gradients(weighted.mean() + self._pull()))
            elif not is_answer(wide):
                self._skip()
        return logits

    def _new(self, sure: Tensor, p: Tensor) -> Tensor:
        """Leave out what is like what was seen, and move what was seen."""
        if self.seen is not None:
            sure = sure & (F.cosine_similarity(self.seen.to(p).unsqueeze(0), p, dim=1).abs() < self.similarity)
        if sure.any():
            now = p[sure].mean(0)
            self.seen = now if self.seen is None else 0.9 * self.seen.to(p) + 0.1 * now
        return sure

    def _pull(self) -> Tensor | float:
        if self.importance is None or self.anchor is None:
            return 0.0
        rows = zip(self.importance, self.parameters_trained(), self.anchor, strict=True)
        return self.fisher_alpha * sum((f * accurate(p - a).square()).sum() for f, p, a in rows)
