"""FedLoG's scaling: synthetic nodes pulled to the middle the more, the better their class is known."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._states import finite
from normkit.federated.fedlog_branches import PAPER
from normkit.statistics import accurate

NAME = "fedlog-scaling"


class Scaled(NamedTuple):
    """Features (M, D), and how far each class is pulled next time, (C,)."""

    features: Tensor
    gamma: Tensor


@method(
    NAME,
    paper=PAPER,
    shape="N I",
    over="N",
    inputs={"label": "N : index C", "gamma": "C : unit", "accuracy": "C : unit"},
)
def fedlog_scaling(
    features: Tensor, label: Tensor, gamma: Tensor, accuracy: Tensor, *, step: float = 0.001, goal: float = 0.8
) -> Scaled:
    """Pull features towards their common mean, further for classes that are already learned.

    For training on the nodes of ``fedlog-synthetic``, which are otherwise learned soon: classes that are known become
    harder. A client's own nodes stay as they are.

        x <- x + gamma_label (mean of all x - x)
        gamma_c <- clip(gamma_c + step, 0, 1) where accuracy_c > goal, else clip(gamma_c - step, 0, 1)

    The features use the gamma that came in.

    Args:
        features: of synthetic nodes, (M, D).
        label: their classes, int64 (M,).
        gamma: (C,), in [0, 1].
        accuracy: of each class on these nodes, (C,).
        step: of gamma.
        goal: the accuracy above which a class is harder to be made.

    Subgraph Federated Learning for Local Generalization (Kim et al., 2025), arXiv 2503.03995.
    """
    check.values(NAME, "features", features, (None, None), features)
    check.values(NAME, "gamma", gamma, (None,), features)
    check.values(NAME, "accuracy", accuracy, gamma.shape, features)
    check.index(NAME, "label", label, features.shape[:1], len(gamma), features)
    step, goal = check.number(NAME, "step", step, 0.0), check.number(NAME, "goal", goal)
    for name, value in (("features", features), ("gamma", gamma), ("accuracy", accuracy)):
        finite(NAME, name, value)
    x, pull = accurate(features), accurate(gamma)
    mean = x.sum(0) / max(len(x), 1)
    moved = torch.clamp(pull + step * torch.where(accuracy > goal, 1, -1).to(pull.dtype), 0, 1)
    return Scaled((x + pull[label].unsqueeze(1) * (mean - x)).to(features.dtype), moved.to(gamma.dtype))
