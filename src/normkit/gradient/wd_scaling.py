"""A rule for AdamW's learning rate and weight decay at another width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Estimator
from normkit.parameters import MATRICES, fits, roles
from normkit.statistics import accurate

EXPONENT = 0.75  # of the width in the largest singular value; measured by the authors


@method(
    "wd-scaling",
    paper="Robust Layerwise Scaling Rules by Proper Weight Decay Tuning (Fan et al., 2025), arXiv 2510.15262",
    evidence="abstract",
    shape="...",
    example={"base_width": 4, "lr": 0.02, "weight_decay": 0.1},
    provenance="the rule as the paper's abstract states it, in float64; no code of the authors was found",
)
class WDScaling(Estimator):
    """Carry a learning rate and a weight decay of AdamW over from one width to another.

    For training a wide model with AdamW at what was tuned on a narrow one. It speaks of width alone, not of depth,
    batch or the number of steps. With ``scion`` one rate is meant for all widths.

    With r = width / base_width:

        matrices inside, both of whose axes grow:   lr / r,    weight_decay sqrt(r)
        embeddings, heads, gains, biases:           lr,        0

    and ``rule(weight)`` also returns sigma, its largest singular value over sqrt(lr / weight_decay) width^0.75 with
    the two of its class: late in training it should be the same at all widths; 0 for vectors.

    Args:
        width: of the model that is trained.
        base_width: of the model that lr and weight_decay were tuned for.
        lr: the learning rate found there.
        weight_decay: the weight decay found there.
        vector_like: names or types of modules, or names of parameters, that are taken as vectors although they have two
            axes; names may be patterns such as ``"*.gate"``. ``rule(weight, name)`` knows no types of modules.

    ``rule(weight, name=None)`` returns ``(lr, weight_decay, sigma)``; ``rule.param_groups(model)`` groups for
    ``torch.optim.AdamW``. The former sees a tensor alone: two axes or more are a matrix inside, embeddings and heads
    too, unless ``vector_like`` has the name.

    Robust Layerwise Scaling Rules (Fan et al., 2025), arXiv 2510.15262.
    """

    def __init__(
        self,
        width: int,
        *,
        base_width: int,
        lr: float,
        weight_decay: float,
        vector_like: str | type[nn.Module] | Sequence[str | type[nn.Module]] = (),
    ):
        self.width = check.size(self, "width", width)
        self.base_width = check.size(self, "base_width", base_width)
        self.lr = check.number(self, "lr", lr, 0.0)
        self.weight_decay = check.eps(self, weight_decay, "weight_decay")
        self.vector_like = (vector_like,) if isinstance(vector_like, str | type) else tuple(vector_like)

    def rates(self, matrix: bool) -> tuple[float, float]:
        """The learning rate and the weight decay of matrices, or of vectors."""
        ratio = self.width / self.base_width
        return (self.lr / ratio, self.weight_decay * math.sqrt(ratio)) if matrix else (self.lr, 0.0)

    @torch.no_grad()
    def __call__(self, weight: Tensor, name: str | None = None) -> tuple[float, float, float]:
        """Return learning rate, weight decay and the normalized singular value of a parameter."""
        check.floating(self, weight, "weight")
        patterns = [entry for entry in self.vector_like if isinstance(entry, str)]
        matrix = weight.dim() >= 2 and not (name and any(fits(name, pattern) for pattern in patterns))
        lr, decay = self.rates(matrix)
        if not matrix or not lr or not decay:
            return lr, decay, 0.0
        largest = torch.linalg.matrix_norm(accurate(weight).flatten(1), 2)
        return lr, decay, float(largest) / (math.sqrt(lr / decay) * self.width**EXPONENT)

    def param_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Return two groups of a model's parameters, for ``torch.optim.AdamW``."""
        rows = roles(model, override=dict.fromkeys(self.vector_like, "embedding"))
        groups = []
        for is_matrix in (True, False):
            lr, decay = self.rates(is_matrix)
            own = [row.parameter for row in rows if (row.role in MATRICES) == is_matrix]
            groups.append({"params": own, "lr": lr, "weight_decay": decay})
        return [group for group in groups if group["params"]]
