"""CoTTA: continual adaptation towards a slow teacher, with random restoring of the source."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.inference._norms import cross_entropies, follow, norms_of, use_batch_statistics
from normkit.inference._views import Views, check_views, view
from normkit.kinds import Adapter
from normkit.kinds.adapter import optimizer_builder
from normkit.parameters import copy_model
from normkit.statistics import accurate

VIEWS = 32


@method(
    "cotta",
    paper="Continual Test-Time Domain Adaptation (Wang et al., 2022), arXiv 2203.13591",
    shape="N C H W",
)
class CoTTA(Adapter):
    """Train all parameters towards a slow average of the model, and put some of them back to the source.

    For a world that changes again and again. For one new domain ``tent`` needs no second model.

    The teacher's logits are t, averaged over augmented views where the source model is unsure of the batch (the mean of
    its largest probabilities below ``anchor_threshold``). The loss is the mean of -sum softmax(t) log
    softmax(student(x)). After the step the teacher moves to teacher * teacher + (1 - teacher) * student, and each
    number of the student is put back to the source's with the probability ``restore``.

    Args:
        model: any model; it is taken over and becomes the student. Batch norms use the batch's statistics.
        optimizer: "adam", "sgd", or a function of the parameters.
        lr: the learning rate.
        momentum: Adam's first beta, or that of SGD.
        teacher: the share that the teacher keeps of itself.
        restore: the probability of being put back.
        anchor_threshold: the sureness of the source model from which no views are taken.
        guard: "off"; or, where the adaptation collapses, "stop" or "reset", as :class:`normkit.kinds.Guard` tells.

    A call returns the teacher's logits t. It may be given ``views`` (V, N, ...), a tensor or its parts, by default 32
    of its own where they are needed; and ``draws``, a uniform number for each number of the parameters, in order.
    State: ``model``, ``average`` (the teacher), ``anchor`` (the source).

    Continual Test-Time Domain Adaptation (Wang et al., 2022), arXiv 2203.13591: for CIFAR-10 as the defaults, for
    CIFAR-100 a threshold of 0.72, for ImageNet 0.999, 0.001, 0.1.
    """

    wants = "any parameter"
    remembers = ("wide",)
    wide: dict[int, Tensor] = {}  # pickles of before have none

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Any = "adam",
        lr: float = 1e-3,
        momentum: float = 0.9,
        teacher: float = 0.999,
        restore: float = 0.01,
        anchor_threshold: float = 0.92,
        guard: str = "off",
    ):
        norms_of(self, model, bool, None)
        super().__init__(model, optimizer_builder(self, optimizer, lr=lr, momentum=momentum), guard)
        self.teacher = check.number(self, "teacher", teacher, 0.0, 1.0)
        self.restoring = check.number(self, "restore", restore, 0.0, 1.0)
        self.anchor_threshold = check.number(self, "anchor_threshold", anchor_threshold)
        self.train_only(name for name, _ in model.named_parameters())
        use_batch_statistics(model.modules())
        self.average = copy_model(model).requires_grad_(False)
        self.anchor = copy_model(model).requires_grad_(False)

    def begin(self) -> None:
        """Teacher and source are the model."""
        self.average.load_state_dict(self.model.state_dict())
        self.anchor.load_state_dict(self.model.state_dict())
        self.wide = {}

    def observe(self, x: Tensor, views: Views | None = None, draws: Tensor | None = None) -> Tensor:
        """Predict ``x`` by the teacher, then train the student towards it."""
        count = sum(p.numel() for p in self.model.parameters())
        if draws is not None:
            check.shape(self, "draws", draws, (count,), x)
        if views is not None:
            check_views(self, views, (None, *x.shape), x)
        target = self._target(x, views)
        logs = torch.log_softmax(accurate(self.logits(self.model, x)), 1)
        moved = self.step(self.gradients(cross_entropies(torch.softmax(accurate(target), 1), logs).mean()))
        if moved:
            self.wide = follow(self.average, self.model, 1 - self.teacher, self.wide)
            self._restore_some(torch.rand(count, dtype=torch.float32, device=x.device) if draws is None else draws)
        return target

    @torch.no_grad()
    def _target(self, x: Tensor, views: Views | None) -> Tensor:
        sureness = torch.softmax(accurate(self.logits(self.anchor, x)), 1).amax(1).mean()
        if not bool(sureness < self.anchor_threshold):
            return self.logits(self.average, x)
        own = (view(x) for _ in range(VIEWS)) if views is None else iter(views)
        return torch.stack([self.logits(self.average, one) for one in own]).mean(0)

    @torch.no_grad()
    def _restore_some(self, draws: Tensor) -> None:
        parameters = list(self.model.parameters())
        parts = draws.split([p.numel() for p in parameters])
        for p, source, part in zip(parameters, self.anchor.parameters(), parts, strict=True):
            p.copy_(torch.where(part.view_as(p) < self.restoring, source, p))
