"""SAR: sharpness-aware entropy minimization on sure samples, with a way back."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.inference._norms import Names, entropies, gains_and_shifts, is_norm, norms_of, use_batch_statistics
from normkit.kinds import Adapter
from normkit.kinds.adapter import optimizer_builder
from normkit.statistics import accurate


@method(
    "sar",
    paper="Towards Stable Test-Time Adaptation in Dynamic Wild World (Niu et al., 2023), arXiv 2302.12400",
    shape="N C H W",
    example={"entropy_margin": 10.0, "recover": 0.0},
)
class SAR(Adapter):
    """Train norms towards flat minima of the entropy, on sure samples, and go back where the model collapses.

    For single samples, mixed shifts and shifted labels, with group or layer norm. In large mixed batches ``tent`` asks
    for less.

    With H the entropies and g the gradient of their mean over the samples where H < entropy_margin, the parameters
    first go to theta + rho g / ||g||; there H' is taken of the same samples, those with H' < entropy_margin give the
    gradient of an SGD step from theta. The mean H' kept, m, is averaged as 0.9 m + 0.1 H'; below ``recover`` the
    parameters go back to the first ones.

    Args:
        model: any model with norms; it is taken over and changed. Batch norms use the batch's statistics.
        lr: the learning rate of SGD.
        momentum: of SGD.
        rho: the length of the first step.
        entropy_margin: the least entropy that is unsure; None: 0.4 log K of K classes.
        steps: on each batch.
        recover: the mean entropy below which the model has collapsed; 0: never.
        norms: the names of the norms whose parameters are trained; None: all. The authors leave out the last stage.
        guard: "off"; or, where the adaptation collapses, "stop" or "reset", as :class:`normkit.kinds.Guard` tells.

    It returns the logits from before the step. A recovery leaves momentum and m as they are, as in the authors' code.

    Towards Stable Test-Time Adaptation in Dynamic Wild World (Niu et al., 2023), arXiv 2302.12400.

    Differs from the authors' code in: ``recover`` is used (theirs is 0.2 whatever is asked), and no layer is left out
    by its name.
    """

    remembers = ("level",)
    level: float | None

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float = 2.5e-4,
        momentum: float = 0.9,
        rho: float = 0.05,
        entropy_margin: float | None = None,
        steps: int = 1,
        recover: float = 0.2,
        norms: Names = None,
        guard: str = "off",
    ):
        own = norms_of(self, model, is_norm, norms)
        super().__init__(model, optimizer_builder(self, "sgd", lr=lr, momentum=momentum), guard)
        self.rho = check.number(self, "rho", rho, 0.0)
        self.entropy_margin = None if entropy_margin is None else check.number(self, "entropy_margin", entropy_margin)
        self.steps, self.recover = check.size(self, "steps", steps), check.number(self, "recover", recover)
        self.train_only(gains_and_shifts(own))
        use_batch_statistics(model.modules())

    def begin(self) -> None:
        """No entropy was kept yet."""
        self.level = None

    def observe(self, x: Tensor) -> Tensor:
        """Predict ``x``, then take a sharpness-aware step."""
        for _ in range(self.steps):
            logits = self.logits(self.model, x)
            unsure = entropies(accurate(logits))
            if not bool(unsure.isfinite().all()):
                self._skip()
                break
            margin = 0.4 * math.log(logits.shape[1]) if self.entropy_margin is None else self.entropy_margin
            sure = unsure < margin
            self.step(self._flat(x, self._of(unsure, sure), sure, margin))
            if self.level is not None and self.level < self.recover:
                self.restore(buffers=False)
        return logits

    def _of(self, unsure: Tensor, kept: Tensor) -> list[Tensor]:
        """The gradient of the mean over samples that are kept; zeros where none is."""
        if not kept.any():
            return [torch.zeros_like(p) for p in self.parameters_trained()]
        return self.gradients(unsure[kept].mean())

    def _flat(self, x: Tensor, grads: Sequence[Tensor], sure: Tensor, margin: float) -> list[Tensor]:
        """The gradient a step further uphill, with the parameters back where they were."""
        parameters = self.parameters_trained()
        length = torch.stack([accurate(g).norm() for g in grads]).norm()
        before = [p.detach().clone() for p in parameters]
        try:
            with torch.no_grad():
                for p, g in zip(parameters, grads, strict=True):
                    p.add_((g * (self.rho / (length + 1e-12))).to(p.dtype))
            unsure = entropies(accurate(self.logits(self.model, x)))
            kept = sure & (unsure < margin)
            gradients = self._of(unsure, kept)
        finally:
            with torch.no_grad():
                for p, old in zip(parameters, before, strict=True):
                    p.copy_(old)
        if kept.any():
            mean = float(unsure[kept].detach().mean())
            self.level = mean if self.level is None else 0.9 * self.level + 0.1 * mean
        return gradients
