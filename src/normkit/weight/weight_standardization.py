"""Weight standardization: the filters of a convolution, each with mean 0 and deviation 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from normkit import check, ops
from normkit.catalog import method
from normkit.kinds import Parametrization


@method(
    "weight-standardization",
    paper="Micro-Batch Training with Batch-Channel Normalization and Weight Standardization (Qiao et al., 2019), "
    "arXiv 1903.10520",
    shape="C I",
    over="I",
    aliases=("ws",),
    example={"shape": lambda filters: (filters, 5)},
    invariant=("shift", "scale"),
)
class WeightStandardization(Parametrization):
    """Subtract each filter's mean, and divide by its standard deviation.

    For training with one or two images a step, in front of a ``groupnorm``, where a batch norm's statistics are noise.
    Without a norm behind it outputs grow with the size of the filter; there take ``scaled-weight-standardization``.

    With a channel of the weight w and its n entries,

        weight = (w - mean(w)) / (deviation(w) + eps)

    Every entry has variance 1, so outputs grow with sqrt(n): only in front of a norm. A constant filter gives 0.

    Args:
        shape: of the weight; the first axis counts the filters.
        eps: added to the deviation, or inside its root.
        unbiased: the deviation has n - 1 below, as in the authors' PyTorch layer.
        eps_inside: sqrt(variance + eps). timm's StdConv2d is ``unbiased=False, eps_inside=True, eps=1e-6``, BiT the
            same with 1e-10; the authors' TensorFlow layer is ``unbiased=False``.

    Micro-Batch Training with Batch-Channel Normalization and Weight Standardization (Qiao et al., 2019), arXiv
    1903.10520.

    Differs from the paper in: its formula has the biased variance with eps inside; the defaults are the authors' code.
    """

    per_output = True

    def __init__(self, shape: Sequence[int], *, eps: float = 1e-5, unbiased: bool = True, eps_inside: bool = False):
        super().__init__()
        self.shape = check.sizes(self, "shape", shape, least=2)
        self.eps, self.unbiased, self.eps_inside = check.eps(self, eps), bool(unbiased), bool(eps_inside)
        entries = math.prod(self.shape[1:])
        if unbiased and entries == 1:
            raise ValueError(
                f"{type(self).__name__}: shape {self.shape} has one entry a filter, which has no unbiased deviation; "
                "unbiased=False takes it"
            )
        rule = ops.Row(center=True, eps=eps, eps_place="inside" if eps_inside else "outside")
        self.rule = rule.unbiased(entries) if unbiased else rule

    def forward(self, raw: Tensor) -> Tensor:
        """Return the weight, in the type of ``raw``."""
        check.values(self, "raw", raw, self.shape, raw)
        return ops.row_norm(raw.flatten(1), rule=self.rule).view(self.shape)
