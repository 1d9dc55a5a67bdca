"""FedLoG's synthetic nodes: clients' prototypes averaged class by class."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._states import finite, mean, total
from normkit.federated.fedlog_branches import PAPER

NAME = "fedlog-synthetic"


@method(NAME, paper=PAPER, shape="K S P C", over="K", inputs={"class_rate": "K S : unit"})
def fedlog_synthetic(features: Tensor, class_rate: Tensor) -> Tensor:
    """Average the clients' synthetic nodes of each class, by how frequent the class is at each.

    For classes that a client lacks: it trains on what the others know of them.

        weight_kc = rate_kc / sum_j rate_jc,    1 / K for a class that nobody has
        features_cs = sum_k weight_kc features_kcs

    Args:
        features: of K clients, C classes, S nodes each, (K, C, S, D); shuffle a client's nodes first.
        class_rate: (K, C).

    Returns features (C, S, D).

    Subgraph Federated Learning for Local Generalization (Kim et al., 2025), arXiv 2503.03995.
    """
    check.values(NAME, "features", features, (None, None, None, None), features)
    check.shape(NAME, "class_rate", class_rate, features.shape[:2], features)
    if not len(features):
        raise ValueError(f"{NAME}: features must be of one client or more")
    finite(NAME, "features", features)
    finite(NAME, "class_rate", class_rate)
    if (class_rate < 0).any():
        raise ValueError(f"{NAME}: class_rate must not be below 0")
    rate = class_rate.double()
    return mean(features, torch.where(total(rate) > 0, rate, 1)).to(features.dtype)
