"""APFL's mixture: how much of a personal model, moved by one step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.federated._states import read

NAME = "apfl-alpha"
PAPER = "Adaptive Personalized Federated Learning (Deng et al., 2020), arXiv 2003.13461"
ROLES = ("personal", "shared", "personal_gradient", "shared_gradient")


@method(
    NAME,
    paper=PAPER,
    shape="C",
    over="C",
    inputs={"shared": "C", "personal_gradient": "C", "shared_gradient": "C", "alpha": "1 : unit"},
    example={"entries": ("weight",), "lr": 0.01},
)
def apfl_alpha(*states: Tensor, entries: Sequence[str], lr: float, decay: float = 0.02) -> Tensor:
    """Move a client's mixture of personal and shared model against its gradient, and keep it in [0, 1].

    For clients between training alone, 1, and training together, 0. A share that is fixed needs none of it:
    ``apfl-step`` takes it as it is.

    With v personal, w shared, g their gradients,

        h = sum over entries <v - w, alpha g_v + (1 - alpha) g_w> + decay alpha,    alpha <- clip(alpha - lr h, 0, 1)

    As the authors' code: g comes from the mixed outputs and holds alpha already, so that this is no derivative, and
    ``decay`` is not in the paper.

    Args:
        states: the entries of v, of w, of g_v, of g_w, then alpha, a single number.
        entries: the names, in order.
        lr: the step.
        decay: the pull towards the shared model.

    Adaptive Personalized Federated Learning (Deng et al., 2020), arXiv 2003.13461.
    """
    tensors, [alpha] = read(NAME, states, dict.fromkeys(ROLES, entries), ("alpha",), clients=False)
    if alpha.numel() != 1:
        raise ValueError(f"{NAME}: states alpha must be a single number, but its shape is {tuple(alpha.shape)}")
    check.number(NAME, "lr", lr, 0.0)
    check.number(NAME, "decay", decay, 0.0)
    return moved([tensors[role] for role in ROLES], alpha.double(), lr, decay).to(alpha.dtype)


def moved(parts: Sequence[Sequence[Tensor]], alpha: Tensor, lr: float, decay: float) -> Tensor:
    """Return the new mixture from the entries of v, w, g_v and g_w; products are summed in float64."""
    slope = decay * alpha
    for v, w, gv, gw in zip(*parts, strict=True):
        slope = slope + ((v.double() - w.double()) * (alpha * gv.double() + (1 - alpha) * gw.double())).sum()
    return torch.clamp(alpha - lr * slope, 0, 1)
