"""A linear classifier of features on the sphere, trained with alignment and uniformity."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.activation.token import _sphere
from normkit.catalog import method
from normkit.kinds import Method
from normkit.layers import Linear
from normkit.statistics import accurate

FLOOR = 1e-12  # of a length


@method(
    "hyperspherical-head",
    paper="Deepfake Detection that Generalizes Across Benchmarks (Yermakov et al., 2025), arXiv 2508.06248",
    shape="N C",
    over="C",
    example={"classes": 3},
)
class HypersphericalHead(Method):
    """Divide features by their length and classify them linearly; the loss also spreads them over the sphere.

    For a classifier on a pretrained encoder that should also hold on sources it was not trained on, as in detecting
    deepfakes. Only the gains and shifts of the encoder's LayerNorms are trained beside it. The two further terms of its
    loss, without a classifier, are ``alignment-uniformity``.

    With x the encoder's pooled features,

        features = x / max(||x||, 1e-12),    logits = features weightᵀ + bias
        loss = cross_entropy * CE(logits, labels) + alignment * A + uniformity * U

    with A and U of ``alignment-uniformity`` on the features; a term with the factor 0 is left out. Nothing scales the
    logits, which ||weight|| bounds: the weights must grow.

    Args:
        dim: features of a sample.
        classes: number of classes.
        cross_entropy, alignment, uniformity: factors of the terms; alpha and temperature are 2.
        label_smoothing: of the cross-entropy.

    ``head(x)``: (N, dim) -> (logits (N, classes), features (N, dim)). ``loss(x, labels)``: a single number. The
    authors take 0 for a batch whose loss is NaN, and decay neither biases nor norms.

    Deepfake Detection that Generalizes Across Benchmarks (Yermakov et al., 2025), arXiv 2508.06248, there GenD.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        cross_entropy: float = 1.0,
        alignment: float = 0.1,
        uniformity: float = 0.5,
        label_smoothing: float = 0.0,
    ):
        super().__init__()
        self.dim, self.classes = check.size(self, "dim", dim), check.size(self, "classes", classes)
        self.cross_entropy = check.number(self, "cross_entropy", cross_entropy)
        self.alignment = check.number(self, "alignment", alignment)
        self.uniformity = check.number(self, "uniformity", uniformity)
        self.label_smoothing = check.number(self, "label_smoothing", label_smoothing, 0, 1)
        start = Linear(dim, classes)
        self.weight, self.bias = start.weight, start.bias

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and features."""
        logits, features = self._forward(x)
        return logits.to(x.dtype), features.to(x.dtype)

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        check.values(self, "x", x, (None, self.dim), x)
        features = F.normalize(accurate(x), dim=-1, eps=FLOOR)
        weight, bias = (p.to(features.dtype) for p in (self.weight, self.bias))
        return F.linear(features, weight, bias), features

    def loss(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch, ``labels`` int64 (N,)."""
        logits, features = self._forward(x)
        check.index(self, "labels", labels, x.shape[:1], self.classes, x)
        total = logits.new_zeros(())
        if self.cross_entropy:
            smoothed = F.cross_entropy(logits, labels, label_smoothing=self.label_smoothing)
            total = total + self.cross_entropy * smoothed
        if self.alignment:
            total = total + self.alignment * _sphere.alignment(features, labels, 2.0)
        if self.uniformity:
            total = total + self.uniformity * _sphere.uniformity(features, 2.0)
        return total.to(x.dtype)
