"""Conditional batch normalization: a gain and shift for each class."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.conditional._map import FreeNorm
from normkit.catalog import method


@method(
    "conditional-batchnorm",
    paper="Modulating early visual processing by language (de Vries et al., 2017), arXiv 1707.00683; A Learned "
    "Representation for Artistic Style (Dumoulin et al., 2016), arXiv 1610.07629",
    evidence="equations",
    shape="N C *",
    over="N *",
    inputs={"labels": "N : index 3"},
    example={"num_classes": 3},
    replaces=("batchnorm", "instancenorm"),
    aliases={
        "cbn": {},
        "conditional-instancenorm": {"norm": "instance"},
        "sandwich-batchnorm": {"shared": True},
    },
    invariant=("shift", "scale"),
    provenance="equations in float64 in tests/activation/test_conditional_neighbours.py",
)
class ConditionalBatchNorm(FreeNorm):
    """Normalize each channel by the batch's moments, then give it the gain and shift of its sample's class.

    For generators that draw a class, and for styles that one network shall know. Where the condition is a vector and
    not a class, take ``adaptive-groupnorm`` or ``film``.

    With n the batch-normalized x without gain and shift (or the instance-normalized one),

        y = weight[label] * n + bias[label]

    Every class starts with gains 1 and shifts 0. With ``shared`` (sandwich batch norm) an affine map that all classes
    share comes first: weight[label] * (shared_weight * n + shared_bias) + bias[label].

    Args:
        num_features: C.
        num_classes: rows of weight and bias.
        norm: ``"batch"`` with running moments, or ``"instance"`` (conditional instance norm).
        shared: learn an affine map for all classes as well.
        eps: added to the variance under the root.
        momentum: share of the NEW batch in the running moments; None weighs all batches alike.
        sync: join the batch's moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input x ``(N, C)`` or ``(N, C, *space)`` and labels ``(N,)`` int64. An instance norm needs space: one value is its
    own mean, and gives the shift alone.

    Modulating early visual processing by language (de Vries et al., 2017), arXiv 1707.00683; of instance norms A
    Learned Representation for Artistic Style (Dumoulin et al., 2016), arXiv 1610.07629; shared: Sandwich Batch
    Normalization (Gong et al., 2021), arXiv 2102.11382.
    """

    shared_weight: nn.Parameter | None
    shared_bias: nn.Parameter | None

    def __init__(
        self,
        num_features: int,
        *,
        num_classes: int,
        norm: str = "batch",
        shared: bool = False,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
    ):
        free = {"norm": norm, "eps": eps, "momentum": momentum, "sync": sync, "process_group": process_group}
        super().__init__(num_features, **free)
        self.num_classes = check.size(self, "num_classes", num_classes)
        self.weight = nn.Parameter(torch.ones(num_classes, num_features))
        self.bias = nn.Parameter(torch.zeros(num_classes, num_features))
        self.register_parameter("shared_weight", nn.Parameter(torch.ones(num_features)) if shared else None)
        self.register_parameter("shared_bias", nn.Parameter(torch.zeros(num_features)) if shared else None)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Normalize ``x`` and modulate it by the class of each sample; in training move the running moments."""
        check.channels_first(self, x, self.num_features)
        check.index(self, "labels", labels, x.shape[:1], self.num_classes, x)
        n = ops.affine(self._normalize(x), self.shared_weight, self.shared_bias)
        gain, shift = (statistics.accurate(table)[labels].to(n.dtype) for table in (self.weight, self.bias))
        return ops.affine(n, gain, shift).to(x.dtype)
