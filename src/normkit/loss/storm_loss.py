"""STORM's loss: losses weighted sample by sample, with their sum kept."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate


@method(
    "storm-loss",
    paper="Learning from Noisy Labels via Self-Taught On-the-Fly Meta Loss Rescaling (Heck et al., 2025), "
    "arXiv 2412.12955",
    shape="N : unit",
    over="N",
    inputs={"weights": "N : unit"},
)
def storm_loss(losses: Tensor, weights: Tensor, *, normalize: bool = True) -> Tensor:
    """Multiply each loss by its weight, then all by one number, so that they sum to what they did before.

    For training on noisy labels with the weights of ``storm-rescaler``: a step does not become smaller because many
    weights are small. Where it should, set ``normalize=False``.

        y_n = l_n w_n (sum l) / (sum l w)

    Losses that are all 0 stay 0. Gradients go through all of it, so that a sum of the result knows no weights.

    Args:
        losses: of the samples, (N,).
        weights: from ``storm-rescaler``, (N,).
        normalize: keep the sum; else l_n w_n.

    STORM (Heck et al., 2025), arXiv 2412.12955.
    """
    check.values("storm-loss", "losses", losses, (None,), losses)
    check.values("storm-loss", "weights", weights, losses.shape, losses)
    keeps = check.choice("storm-loss", "normalize", normalize, (True, False))
    return rescale(accurate(losses), accurate(weights), keeps).to(losses.dtype)


def rescale(losses: Tensor, weights: Tensor, normalize: bool) -> Tensor:
    """Return losses times weights, with the sum of the losses if ``normalize``."""
    weighted = losses * weights
    if not normalize:
        return weighted
    total = weighted.sum()
    return weighted * (losses.sum() / torch.where(total == 0, 1, total))
