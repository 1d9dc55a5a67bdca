"""What the parts of learned rounding share."""

from __future__ import annotations

import torch
from torch import Tensor

PAPER = (
    "Gradient-Based Post-Training Quantization: Challenging the Status Quo (Yvinec, Dapogny, Bailly, 2023), "
    "arXiv 2308.07662"
)
PROVENANCE = "the code of the family under study, BRECQ; the paper's own is not public"
GAMMA, ZETA = -0.1, 1.1


def share(alpha: Tensor) -> Tensor:
    """How far each weight goes up, from 0 to 1; the ends are reached, and there the gradient is 0."""
    return torch.clamp(torch.sigmoid(alpha) * (ZETA - GAMMA) + GAMMA, 0, 1)
