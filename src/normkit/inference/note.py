"""NOTE: adaptation on a memory that is balanced over classes, with batch norms that look at each instance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.inference._norms import Names, gains_and_shifts, is_batch_norm, norms_of, replace_batch_norms
from normkit.inference.iabn import IABN
from normkit.inference.prediction_balanced_reservoir import take
from normkit.kinds import Adapter
from normkit.kinds.adapter import optimizer_builder
from normkit.kinds.guard import is_answer
from normkit.parameters import mode
from normkit.statistics import accurate

LEAST = 1e-6  # beside a probability under the logarithm


@method(
    "note",
    paper="NOTE: Robust Continual Test-time Adaptation Against Temporal Correlation (Gong et al., 2022), arXiv "
    "2208.05117",
    shape="N C H W",
    example={"capacity": 4},
)
class NOTE(Adapter):
    """Adapt norms on a memory that is balanced over the predicted classes, with instance-aware batch norms.

    For streams whose classes come one after the other, of any batch size, one sample too. In well mixed batches
    ``tent`` needs no memory.

    Batch norms become ``iabn`` with their numbers. ``adapt(memory)`` is one step on a batch: with p = softmax(logits /
    temperature), it lowers the mean over samples and classes of -p log(p + 1e-6). A call predicts in evaluation; with
    ``capacity`` it also keeps the samples in a ``prediction-balanced-reservoir``, and adapts whenever that many more
    have come.

    Args:
        model: any model with batch norms; it is taken over and changed.
        optimizer: "adam", "sgd", or a function of the parameters.
        lr: the learning rate.
        momentum: Adam's first beta, or that of SGD.
        k: how many standard errors an instance may be off in ``iabn``.
        stat_momentum: share of the memory in the running moments.
        temperature: of the softmax.
        capacity: places of the memory; None: a call only predicts.
        norms: the names of the norms; None: all batch norms.
        guard: "off"; or, where the adaptation collapses, "stop" or "reset", as :class:`normkit.kinds.Guard` tells.

    NOTE (Gong et al., 2022), arXiv 2208.05117: a memory of 64, an update each 64 samples.

    Differs from the authors' code in: where it draws for itself it draws from torch's generator.
    """

    wants = "weight or bias of a batch norm"
    remembers = ("held", "seen", "waiting")
    held: list[list[Tensor]]
    seen: list[int]
    waiting: int

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Any = "adam",
        lr: float = 1e-4,
        momentum: float = 0.9,
        k: float = 3.0,
        stat_momentum: float = 0.1,
        temperature: float = 1.0,
        capacity: int | None = None,
        norms: Names = None,
        guard: str = "off",
    ):
        own = norms_of(self, model, is_batch_norm, norms)
        super().__init__(model, optimizer_builder(self, optimizer, lr=lr, momentum=momentum), guard)
        self.temperature = check.number(self, "temperature", temperature, 0.0, open_low=True)
        self.capacity = None if capacity is None else check.size(self, "capacity", capacity)
        k, share = check.number(self, "k", k, 0.0), check.number(self, "stat_momentum", stat_momentum, 0.0, 1.0)
        made = replace_batch_norms(
            self, model, own, lambda norm: IABN(norm.num_features, k=k, eps=norm.eps, momentum=share)
        )
        self.train_only(gains_and_shifts(made))

    def begin(self) -> None:
        """The memory is empty."""
        self.held, self.seen, self.waiting = [], [], 0

    def adapt(self, memory: Tensor) -> Tensor:
        """Take one step on a batch of the memory, and return its loss."""
        self.start()
        with torch.enable_grad(), mode(self.model, True):
            p = torch.softmax(accurate(self.logits(self.model, memory)) / self.temperature, 1)
            loss = -(p * (p + LEAST).log()).mean()
            self.step(self.gradients(loss))
        return loss.detach()

    def observe(self, x: Tensor) -> Tensor:
        """Predict ``x`` in evaluation, and keep it where there is a memory."""
        with torch.no_grad(), mode(self.model, False):
            logits = self.logits(self.model, x)
        if self.capacity is not None:
            if is_answer(logits):
                self._keep(x.detach(), logits, self.capacity)
            else:
                self._skip()
        return logits

    def _keep(self, x: Tensor, logits: Tensor, capacity: int) -> None:
        if not self.held:
            self.held, self.seen = [[] for _ in range(logits.shape[1])], [0] * logits.shape[1]
        draws = torch.rand(len(x), 3, dtype=torch.float64, device="cpu").tolist()
        for sample, label, draw in zip(x, logits.argmax(1).tolist(), draws, strict=True):
            take(self.held, self.seen, sample.clone(), label, draw, capacity)
            self.waiting += 1
            if self.waiting == capacity:
                self.waiting = 0
                self.adapt(torch.stack([one for own in self.held for one in own]))
