"""Group orthogonality: filters made orthonormal, a group at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate
from normkit.weight._gram import distance
from normkit.weight._penalty import Penalty

SETS = ("inter", "intra")


@method(
    "group-orthogonality",
    paper="Group Orthogonalization Regularization for Vision Models Adaptation and Robustness (Kurtz et al., 2023), "
    "arXiv 2306.10001",
    shape="C I",
    over="C I",
    example={"num_groups": 2},
)
class GroupOrthogonality(Penalty):
    """Add up how far the filters of each group are from being orthonormal.

    For networks with GroupNorm, and for fine-tuning by low-rank adapters: costs 1 / n of full orthogonality. With the
    filters S (r, d) of a set,

        loss = sum over sets |S^T S - I|^2   or, where r < d,   |S S^T - I|^2        (squared Frobenius norms)

    ``"inter"``: the sets are the groups of adjacent filters. ``"intra"``: set i has the i-th filter of every group.
    The names are the authors'. There are min(num_groups, filters // min_num_filters) groups. Multiply the loss by its
    strength, 1e-2 in the paper.

    Args:
        num_groups: n, that of the GroupNorm behind.
        reg_type: ``"inter"`` or ``"intra"``.
        min_num_filters: the least size of a group.

    ``loss(weight)``, the first axis its filters, or ``loss([weight, ...])``.

    Group Orthogonalization Regularization (Kurtz, Bar, Giryes, 2023), arXiv 2306.10001.
    """

    def __init__(self, num_groups: int, *, reg_type: str = "inter", min_num_filters: int = 4):
        super().__init__()
        self.num_groups = check.size(self, "num_groups", num_groups)
        self.reg_type = check.choice(self, "reg_type", reg_type, SETS)
        self.min_num_filters = check.size(self, "min_num_filters", min_num_filters)

    def forward(self, weight: Tensor | Sequence[Tensor]) -> Tensor:
        """Return the loss, a single number."""
        weights: list[Tensor] = [weight] if isinstance(weight, Tensor) else list(weight)
        if not weights:
            raise ValueError(f"{type(self).__name__}: weight is an empty list")
        for each in weights:
            check.floating(self, each, "weight")
        return torch.stack([self._of(each) for each in weights]).sum().to(weights[0].dtype)

    @classmethod
    def misfit(cls, value: Tensor, options: Mapping[str, Any]) -> str:
        """Why a tensor gets no loss, or an empty string."""
        least = options.get("min_num_filters", 4)
        why = super().misfit(value, options)
        if why or len(value) < least:
            return why or f"needs at least min_num_filters={least} filters"
        groups = min(options["num_groups"], len(value) // least)
        return f"{groups} groups do not divide {len(value)} filters" if len(value) % groups else ""

    def _of(self, weight: Tensor) -> Tensor:
        if weight.dim() < 2 or len(weight) < self.min_num_filters:
            raise ValueError(
                f"{type(self).__name__}: weight must have two axes or more and at least min_num_filters="
                f"{self.min_num_filters} filters, but its shape is {tuple(weight.shape)}"
            )
        groups = min(self.num_groups, len(weight) // self.min_num_filters)
        check.divides(self, "num_groups", groups, "filters of weight", len(weight))
        sets = accurate(weight).flatten(1).unflatten(0, (groups, -1))
        return distance(sets if self.reg_type == "inter" else sets.transpose(0, 1))
