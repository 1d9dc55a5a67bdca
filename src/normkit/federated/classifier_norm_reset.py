"""FedLoGe's generic classifier: rows of one length."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._states import finite
from normkit.statistics import accurate

NAME = "classifier-norm-reset"


@method(
    NAME,
    paper="FedLoGe: Joint Local and Generic Federated Learning under Long-tailed Data (Xiao et al., 2024), "
    "arXiv 2401.08977",
    shape="C I",
    over="I",
    invariant=("scale",),
)
def classifier_norm_reset(weight: Tensor, *, norm: float = 1.7) -> Tensor:
    """Scale every row of a classifier to one length.

    For long-tailed classes, after training: lengths of rows follow how frequent classes are, and rare ones lose by it.

        weight_c <- weight_c norm / |weight_c|

    A row of 0 stays 0. Without a bias any ``norm`` predicts the same.

    Args:
        weight: (C, D).
        norm: the length.

    FedLoGe (Xiao et al., 2024), arXiv 2401.08977.
    """
    check.values(NAME, "weight", weight, (None, None), weight)
    norm = check.number(NAME, "norm", norm, 0.0)
    finite(NAME, "weight", weight)
    wide = accurate(weight)
    length = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    return (wide * (norm / torch.where(length > 0, length, 1))).to(weight.dtype)
