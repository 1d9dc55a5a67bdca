"""MEMO: adapt on one sample until its augmentations agree, predict it, and forget."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.inference._norms import is_batch_norm, norms_of, replace_batch_norms
from normkit.inference._views import Views, check_views, view
from normkit.kinds import Adapter
from normkit.kinds.adapter import optimizer_builder
from normkit.ops import channel
from normkit.parameters import mode
from normkit.statistics import accurate, moments

VIEWS = 32


class PriorBatchNorm(nn.Module):
    """A batch norm in evaluation whose running moments are a prior of ``strength`` samples beside the batch."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: Any, strength: float):
        super().__init__()
        self.share, self.eps = strength / (strength + 1), norm.eps
        self.weight, self.bias = norm.weight, norm.bias
        self.register_buffer("running_mean", norm.running_mean.clone())
        self.register_buffer("running_var", norm.running_var.clone())

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (N, C, ...)."""
        wide = accurate(x)
        batch = moments(wide.detach(), [0, *range(2, x.dim())])
        mean = self.share * self.running_mean + (1 - self.share) * batch.mean
        var = self.share * self.running_var + (1 - self.share) * batch.unbiased()
        h = (wide - channel.along(mean, wide)) / channel.along((var + self.eps).sqrt(), wide)
        return channel.affine(h, self.weight, self.bias).to(x.dtype)


def of_batches(model: nn.Module, **options: Any) -> MEMO:
    """It, called as the model is: with a batch."""
    return MEMO(model, **{"batched": True, **options})


@method(
    "memo",
    paper="MEMO: Test Time Robustness via Adaptation and Augmentation (Zhang et al., 2022), arXiv 2110.09506",
    shape="C H W",
    around=of_batches,
    exempt={
        "refused-batch": "each call begins by forgetting the last one",
        "infinite": "each call begins by forgetting the last one",
    },
)
class MEMO(Adapter):
    """Make the mean prediction over the augmentations of one sample sure, predict the sample, and forget.

    For single samples, without a stream. For a stream take ``tent`` or ``cotta``.

    In evaluation mode, each of ``steps`` lowers the entropy of the mean over views of softmax(logits), by all
    parameters; then the sample is predicted. The next call begins anew.

    Args:
        model: any model; it is taken over.
        optimizer: "adam", "sgd", or a function of the parameters.
        lr: the learning rate.
        momentum: Adam's first beta, or that of SGD.
        steps: on each sample.
        prior_strength: let batch norms take 1 / (prior_strength + 1) of their moments from the views; None: none.
        batched: take a batch (N, ...), each sample of which is adapted on alone, and return logits (N, K).
        guard: "off"; or, where the adaptation collapses, "stop" or "reset", as :class:`normkit.kinds.Guard` tells.

    A call takes one sample without a batch axis, and ``views`` (steps, V, ...), a tensor or its parts, by default 32 of
    its own a step; it returns logits (K,).

    MEMO (Zhang et al., 2022), arXiv 2110.09506. CIFAR: lr 0.005, 32 views; ImageNet: prior_strength 16, 64 views.

    Differs from the authors' code in: the optimizer begins anew as well, where theirs keeps Adam's and SGD's momentum.
    """

    wants = "any parameter"

    batched = False  # pickles of before have none

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Any = "sgd",
        lr: float = 0.005,
        momentum: float = 0.0,
        steps: int = 1,
        prior_strength: float | None = None,
        batched: bool = False,
        guard: str = "off",
    ):
        own = norms_of(self, model, is_batch_norm, None)
        super().__init__(model, optimizer_builder(self, optimizer, lr=lr, momentum=momentum), guard)
        self.steps, self.batched = check.size(self, "steps", steps), bool(batched)
        if prior_strength is not None:
            strength = check.number(self, "prior_strength", prior_strength, 0.0)
            if math.isinf(strength):
                raise ValueError(f"{type(self).__name__}: prior_strength must be finite, not {strength}")
            replace_batch_norms(self, model, own, lambda norm: PriorBatchNorm(norm, strength))
        self.train_only(name for name, _ in model.named_parameters())

    def observe(self, x: Tensor, views: Views | None = None) -> Tensor:
        """Adapt on one sample ``x`` from the first numbers, and predict it; on each of a batch where it takes those."""
        if not self.batched:
            if views is not None:
                check_views(self, views, (self.steps, None, *x.shape), x)
            return self._alone(x, views)
        if views is not None:
            raise ValueError(f"{type(self).__name__}: views are of one sample, which batched=True does not take")
        return torch.stack([self._alone(sample, None) for sample in x])

    def _alone(self, x: Tensor, views: Views | None) -> Tensor:
        self.forget()
        with mode(self.model, False):
            for step in range(self.steps):
                own = view(x.expand(VIEWS, *x.shape)) if views is None else views[step]
                logs = torch.log_softmax(accurate(self.logits(self.model, own)), 1)
                logs = logs.clamp(min=torch.finfo(logs.dtype).min)  # of classes that are masked
                mean = torch.logsumexp(logs, 0) - math.log(len(logs))
                self.step(self.gradients(-(mean.exp() * mean).sum()))
            return self.logits(self.model, x.unsqueeze(0))[0]

    def _of_reference(self, x: Tensor) -> Tensor:
        return super()._of_reference(x) if self.batched else super()._of_reference(x.unsqueeze(0))[0]
