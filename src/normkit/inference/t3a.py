"""T3A: a linear classifier replaced by the centroids of sure test features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.inference._features import OfFeatures
from normkit.inference._norms import entropies
from normkit.inference._scores import scores
from normkit.kinds import Fitted, make_guard
from normkit.kinds.guard import RESET
from normkit.statistics import accurate, full_precision


class OfCentroids(OfFeatures):
    """:class:`T3A` in the place of a model's head; logits have the length of the head's mean row."""

    name = "t3a"

    def __init__(self, model: nn.Module, *, supports: int = 100, head: str | None = None, guard: str = "off"):
        super().__init__(model, head=head, guard=guard)
        linear = self.linear
        with torch.random.fork_rng(devices=[]):  # the first numbers of T3A are drawn, and not kept
            made = T3A(linear.in_features, linear.out_features, supports=supports, bias=linear.bias is not None)
        self.t3a = made.to(linear.weight)
        self.begin()
        model.requires_grad_(False)

    @torch.no_grad()
    def begin(self) -> None:
        """The centroids are the rows of the head."""
        linear = self.linear
        self.t3a.weight.copy_(linear.weight)
        if self.t3a.bias is not None and linear.bias is not None:
            self.t3a.bias.copy_(linear.bias)
        self.t3a.reset()

    def answer(self, logits: Tensor, features: Tensor) -> Tensor:
        """Keep features, and answer by the centroids."""
        return self.t3a(features) * accurate(self.t3a.weight).norm(dim=1).mean().to(features)


@method(
    "t3a",
    paper="Test-Time Classifier Adjustment Module for Model-Agnostic Domain Generalization (Iwasawa, Matsuo, 2021), "
    "NeurIPS",
    shape="N C",
    example={"num_classes": 3},
    around=OfCentroids,
    exempt={"arrays": "every call is remembered, so that a second one answers otherwise"},
)
class T3A(Fitted):
    """Classify by the centroids of the test features that a trained classifier is sure of.

    For a trained network with a linear head, without gradients: the features of the stream move the head. Where
    gradients may be taken, ``tent`` moves the norms instead.

    A feature z is kept with its label, the arg max of weight z + bias, and the entropy of that. Of each class the
    ``supports`` surest stay; with c_k the sum of their features, each of length 1,

        logits_k = z . c_k / ||c_k||

    At first each row of the weight is kept as a feature.

    Args:
        num_features: D.
        num_classes: K.
        supports: how many of each class stay. -1 drops the least sure of each class at every call, as in the authors'
            code, where it is meant to keep all.
        bias: of the trained classifier.
        guard: "off"; or, where the adaptation collapses, "stop" or "reset", as :class:`normkit.kinds.Guard` tells; the
            trained classifier then answers. For it logits have the classifier's mean length of a row for c_k's.

    ``t3a(features)`` keeps features (N, D), then predicts them; ``predict`` only predicts; ``reset`` forgets. State:
    ``weight`` (K, D) and ``bias`` (K,) of the trained classifier, which stay, ``features``, ``labels``, ``unsure``.

    Test-Time Classifier Adjustment Module for Model-Agnostic Domain Generalization (Iwasawa, Matsuo, 2021), NeurIPS.
    """

    late = ("features", "labels", "unsure")
    weight: Tensor
    bias: Tensor | None
    features: Tensor
    labels: Tensor
    unsure: Tensor

    def __init__(
        self, num_features: int, num_classes: int, *, supports: int = 100, bias: bool = True, guard: str = "off"
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.num_classes = check.size(self, "num_classes", num_classes)
        self.supports = check.size(self, "supports", supports, least=-1)
        if not supports:
            raise ValueError(f"{type(self).__name__}: supports must be at least 1, or -1, not {supports}")
        self.guard = make_guard(self, guard)
        head = nn.Linear(num_features, num_classes, bias=bias)
        self.register_buffer("weight", head.weight.detach().clone())
        self.register_buffer("bias", head.bias.detach().clone() if bias else None)
        self.reset()

    def reset(self) -> None:
        """Forget what was kept."""
        if self.guard is not None:
            self.guard.clear()
        self._forget()

    def _forget(self) -> None:
        self.register_buffer("features", self.weight.new_empty(0, self.num_features))
        self.register_buffer("labels", torch.empty(0, dtype=torch.long, device=self.weight.device))
        self.register_buffer("unsure", self.weight.new_empty(0))

    @torch.no_grad()
    def forward(self, features: Tensor) -> Tensor:
        """Keep ``features`` (N, D), and return their logits (N, K)."""
        wide = scores(self, "features", features, (None, self.num_features), self.weight)
        if self.guard is not None and self.guard.stopped:
            return self._classify(wide).to(features.dtype)
        self._begin()
        self._keep(wide)
        logits = self._predict(wide)
        if self.guard is not None and self.guard.look(
            self._classify(wide), logits * accurate(self.weight).norm(dim=1).mean().to(logits)
        ):
            logits = self._classify(wide)
            if self.guard.action == RESET:
                self._forget()
        return logits.to(features.dtype)

    @torch.no_grad()
    def predict(self, features: Tensor) -> Tensor:
        """Return the logits (N, K) of ``features`` (N, D) without keeping them."""
        wide = scores(self, "features", features, (None, self.num_features), self.weight)
        self._begin()
        return self._predict(wide).to(features.dtype)

    def _begin(self) -> None:
        if not len(self.features):
            self._keep(accurate(self.weight))

    def _keep(self, z: Tensor) -> None:
        logits = self._classify(z)
        self.features = torch.cat([self.features, z.to(self.features)])
        self.labels = torch.cat([self.labels, logits.argmax(1)])
        self.unsure = torch.cat([self.unsure, entropies(logits).to(self.unsure)])

    def _classify(self, z: Tensor) -> Tensor:
        """What the trained classifier says."""
        with full_precision(z):
            return F.linear(z, accurate(self.weight).to(z), None if self.bias is None else accurate(self.bias).to(z))

    def _predict(self, z: Tensor) -> Tensor:
        rows = [self._surest((self.labels == k).nonzero().flatten()) for k in range(self.num_classes)]
        kept = torch.cat(rows)
        self.features, self.labels, self.unsure = self.features[kept], self.labels[kept], self.unsure[kept]
        unit = F.normalize(accurate(self.features), dim=1).to(z)
        sums = unit.new_zeros(self.num_classes, self.num_features).index_add_(0, self.labels, unit)
        with full_precision(z):
            return z @ F.normalize(sums, dim=1).mT

    def _surest(self, rows: Tensor) -> Tensor:
        return rows[self.unsure[rows].argsort(stable=True)][: self.supports]
