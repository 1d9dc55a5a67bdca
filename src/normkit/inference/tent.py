"""Tent: norms' gains and shifts follow the entropy of the predictions down."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.inference._norms import Names, entropies, gains_and_shifts, is_batch_norm, norms_of, use_batch_statistics
from normkit.kinds import Adapter
from normkit.kinds.adapter import optimizer_builder
from normkit.statistics import accurate


@method(
    "tent",
    paper="Tent: Fully Test-Time Adaptation by Entropy Minimization (Wang et al., 2021), arXiv 2006.10726",
    shape="N C H W",
)
class Tent(Adapter):
    """Train the gains and shifts of batch norms, on each test batch, to make its predictions surer.

    For a network that meets images from elsewhere, in large mixed batches. For single samples take ``sar``, and for
    streams of one class at a time ``note``.

    Batch norms use the batch's own statistics, their running ones are dropped. With H the entropy of a sample's
    softmax, each step lowers mean H. The logits that are returned are those from before the step.

    Args:
        model: any model with batch norms; it is taken over and changed.
        optimizer: "adam", "sgd", or a function of the parameters that returns an optimizer.
        lr: the learning rate: 1e-3 for Adam and batches of 200, 2.5e-4 for SGD and batches of 64.
        momentum: Adam's first beta, or that of SGD.
        weight_decay: of the optimizer.
        nesterov: of SGD.
        steps: on each batch.
        episodic: go back to the start before each batch.
        norms: the names of the norms whose parameters are trained; None: all batch norms.
        guard: "off"; or, where the adaptation collapses, "stop" or "reset", as :class:`normkit.kinds.Guard` tells.

    ``reset()`` goes back to the numbers of the first call. Collapses on streams sorted by class; see ``sar``, ``note``.

    Tent (Wang et al., 2021), arXiv 2006.10726.

    Differs from the authors' code in: batch norms of vectors, sequences and volumes are trained too.
    """

    wants = "weight or bias of a batch norm"

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Any = "adam",
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        steps: int = 1,
        episodic: bool = False,
        norms: Names = None,
        guard: str = "off",
    ):
        own = norms_of(self, model, is_batch_norm, norms)
        build = optimizer_builder(
            self, optimizer, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov
        )
        super().__init__(model, build, guard)
        self.steps, self.episodic = check.size(self, "steps", steps), bool(episodic)
        self.train_only(gains_and_shifts(own))
        use_batch_statistics(model.modules())

    def observe(self, x: Tensor) -> Tensor:
        """Predict ``x``, then lower the entropy of the prediction."""
        if self.episodic:
            self.forget()
        for _ in range(self.steps):
            logits = self.logits(self.model, x)
            self.step(self.gradients(entropies(accurate(logits)).mean()))
        return logits
