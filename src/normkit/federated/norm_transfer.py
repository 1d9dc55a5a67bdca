"""FedLoGe's personal classifier: a shared one whose rows have the lengths of a client's own, and that one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._states import finite
from normkit.statistics import accurate, full_precision

NAME = "norm-transfer"


class Transferred(NamedTuple):
    """Logits (N, C) of the joined classifiers, and the shared one's new weight (C, D)."""

    logits: Tensor
    weight: Tensor


@method(
    NAME,
    paper="FedLoGe: Joint Local and Generic Federated Learning under Long-tailed Data (Xiao et al., 2024), "
    "arXiv 2401.08977",
    shape="N I",
    over="I",
    inputs={
        "global_weight": "C I",
        "global_bias": "C",
        "local_weight": "C I",
        "local_bias": "C",
        "count": "C : unit",
    },
)
def norm_transfer(
    features: Tensor,
    global_weight: Tensor,
    global_bias: Tensor,
    local_weight: Tensor,
    local_bias: Tensor,
    count: Tensor,
) -> Transferred:
    """Multiply a shared classifier's rows by the lengths of a client's rows, and add the client's own logits.

    For long-tailed classes over clients, after training: a row's length tells how frequent its class is there.

        weight_c = global_c |local_c|,    logits = h weightᵀ + global_bias + h localᵀ + local_bias

    Classes that the client does not have, ``count`` 0, get -inf. The shared rows keep their own lengths as well; let
    ``classifier-norm-reset`` take them off first.

    Args:
        features: h (N, D).
        global_weight, local_weight: (C, D).
        global_bias, local_bias: (C,).
        count: the client's samples of each class, (C,).

    FedLoGe (Xiao et al., 2024), arXiv 2401.08977.

    Differs from the authors' code in: -inf, where theirs writes -1e10 into rows, which fails for signed features.
    """
    check.values(NAME, "features", features, (None, None), features)
    check.values(NAME, "global_weight", global_weight, (None, features.shape[1]), features)
    optional = {"global_bias": global_bias, "local_weight": local_weight, "local_bias": local_bias}
    for name, value in optional.items():
        shape = global_weight.shape if name == "local_weight" else global_weight.shape[:1]
        check.values(NAME, name, value, shape, features)
    check.shape(NAME, "count", count, global_weight.shape[:1], features)
    for name, value in {"features": features, "global_weight": global_weight, **optional, "count": count}.items():
        finite(NAME, name, value)
    h, local, shared = accurate(features), accurate(local_weight), accurate(global_weight)
    weight = shared * torch.linalg.vector_norm(local, dim=1, keepdim=True)
    with full_precision(h):
        logits = h @ weight.mT + accurate(global_bias) + h @ local.mT + accurate(local_bias)
    return Transferred(logits.masked_fill(count == 0, -torch.inf).to(features.dtype), weight.to(global_weight.dtype))
