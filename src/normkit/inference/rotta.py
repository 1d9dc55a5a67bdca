"""RoTTA: slow batch norms, a balanced memory and a teacher, for streams that are correlated and change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.inference._norms import (
    Names,
    cross_entropies,
    follow,
    gains_and_shifts,
    is_batch_norm,
    norms_of,
    replace_batch_norms,
)
from normkit.inference._views import view
from normkit.inference.category_balanced_memory import take
from normkit.inference.robust_batchnorm import RobustBatchNorm
from normkit.kinds import Adapter
from normkit.kinds.adapter import optimizer_builder
from normkit.kinds.guard import is_answer
from normkit.parameters import copy_model, mode
from normkit.statistics import accurate

LEAST = 1e-6  # beside a probability under the logarithm


@method(
    "rotta",
    paper="Robust Test-Time Adaptation in Dynamic Scenarios (Yuan et al., 2023), arXiv 2303.13899",
    shape="N C H W",
    example={"memory": 4, "frequency": 2},
)
class RoTTA(Adapter):
    """Teach a model by a slow average of itself, on a small memory that is balanced over classes.

    For streams whose samples are correlated and whose world changes. Where the world stays and only classes come in
    runs, take ``note``.

    Batch norms become ``robust-batchnorm``. The teacher predicts in evaluation; its samples enter a
    ``category-balanced-memory`` one by one, and after each ``frequency`` of them the student is trained on the memory:
    with t the teacher's logits, z the student's of an augmented copy, and a the age of a sample over the memory's size,
    the loss is the mean of

        exp(-a) / (1 + exp(-a)) CE(softmax(t), z)

    Then teacher = (1 - nu) teacher + nu student.

    Args:
        model: any model with batch norms; it is taken over and becomes the student.
        optimizer: "adam", "sgd", or a function of the parameters.
        lr: the learning rate.
        momentum: Adam's first beta, or that of SGD.
        memory: places of the memory.
        frequency: samples between updates.
        nu: the student's share in the teacher.
        stat_momentum: the batch's share in the running moments.
        age_weight: of the age when samples leave the memory.
        augment: a function of a batch; None: flips, shifts, contrast and noise for images, noise for others.
        norms: the names of the norms; None: all batch norms.
        guard: "off"; or, where the adaptation collapses, "stop" or "reset", as :class:`normkit.kinds.Guard` tells.

    The logits that are returned are from before the updates that a batch causes. State: ``model``, ``teacher``.

    Robust Test-Time Adaptation in Dynamic Scenarios (Yuan et al., 2023), arXiv 2303.13899.
    """

    wants = "weight or bias of a batch norm"
    remembers = ("held", "waiting", "wide")
    held: list[list[list[Any]]]
    waiting: int
    wide: dict[int, Tensor] = {}  # pickles of before have none

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Any = "adam",
        lr: float = 1e-3,
        momentum: float = 0.9,
        memory: int = 64,
        frequency: int = 64,
        nu: float = 0.001,
        stat_momentum: float = 0.05,
        age_weight: float = 1.0,
        augment: Callable[[Tensor], Tensor] | None = None,
        norms: Names = None,
        guard: str = "off",
    ):
        own = norms_of(self, model, is_batch_norm, norms)
        super().__init__(model, optimizer_builder(self, optimizer, lr=lr, momentum=momentum), guard)
        self.memory, self.frequency = check.size(self, "memory", memory), check.size(self, "frequency", frequency)
        self.nu, self.age_weight = check.number(self, "nu", nu, 0.0, 1.0), check.number(self, "age_weight", age_weight)
        share = check.number(self, "stat_momentum", stat_momentum, 0.0, 1.0)
        if augment is not None and not callable(augment):
            raise TypeError(f"{type(self).__name__}: augment must be a function of a batch, not {augment!r}")
        self.augment = augment or view
        made = replace_batch_norms(
            self, model, own, lambda norm: RobustBatchNorm(norm.num_features, momentum=share, eps=norm.eps)
        )
        self.train_only(gains_and_shifts(made))
        self.teacher = copy_model(model).requires_grad_(False)

    def begin(self) -> None:
        """The memory is empty, and the teacher is the student."""
        self.held, self.waiting, self.wide = [], 0, {}
        self.teacher.load_state_dict(self.model.state_dict())

    def observe(self, x: Tensor) -> Tensor:
        """Predict ``x`` by the teacher, and let its samples into the memory."""
        with torch.no_grad(), mode(self.teacher, False):
            logits = self.logits(self.teacher, x)
        if not is_answer(logits):
            self._skip()
            return logits
        p = torch.softmax(accurate(logits), 1)
        unsure = -(p * (p + LEAST).log()).sum(1)
        self.held = self.held or [[] for _ in range(logits.shape[1])]
        for sample, label, u in zip(x.detach(), p.argmax(1).tolist(), unsure.tolist(), strict=True):
            take(self.held, sample.clone(), label, u, self.memory, self.age_weight)
            self.waiting += 1
            if self.waiting == self.frequency:
                self.waiting = 0
                self._learn([entry for own in self.held for entry in own])
        return logits

    def _learn(self, entries: list[list[Any]]) -> None:
        """Train the student on the memory, then move the teacher."""
        x = torch.stack([sample for sample, _, _ in entries])
        weights = [math.exp(-age / self.memory) for _, _, age in entries]
        trust = [w / (1 + w) for w in weights]
        with torch.no_grad(), mode(self.teacher, True):
            target = torch.softmax(accurate(self.logits(self.teacher, x)), 1)
        with mode(self.model, True):
            logs = torch.log_softmax(accurate(self.logits(self.model, self.augment(x))), 1)
            self.step(self.gradients((cross_entropies(target, logs) * target.new_tensor(trust)).mean()))
        self.wide = follow(self.teacher, self.model, self.nu, self.wide)
