"""Global magnitude pruning: the smallest weights of all layers together are cut off."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method

NAME = "global-magnitude-pruning"
SLACK = 1e-9  # a product that is a whole number must not be rounded below it


@method(
    NAME,
    paper="Is Complexity Required for Neural Network Pruning? A Case Study on Global Magnitude Pruning (Gupta et al., "
    "2022), arXiv 2209.14624",
    shape="C I",
    over="C I",
    example={"sparsity": 0.5},
)
@torch.no_grad()
def global_magnitude_pruning(*weights: Tensor, sparsity: float, minimum: int = 0) -> tuple[Tensor, ...]:
    """Return a mask for each weight: 1 where it is among the largest of all layers, else 0.

    For pruning a trained network in one go or in rounds, with fine-tuning under fixed masks.

    A pool of n weights loses those below its k-th smallest size, k = int(sparsity n), at least 1; the k-th and its
    equals are kept. With a ``minimum``, layers that would keep fewer keep so many, layers that are smaller stay dense,
    and the others' shares grow until the whole has its sparsity. A layer of exactly ``minimum`` weights is not held, as
    in the authors' code.

    Args:
        weights: of linear layers and convolutions.
        sparsity: the share that goes.
        minimum: the number of weights that a layer keeps at least.

    Is Complexity Required for Neural Network Pruning? (Gupta et al., 2022), arXiv 2209.14624.

    Differs from the authors' code in: no stray number is in the pool; a sparsity that ``minimum`` does not allow is
    refused, where theirs never ends; no layer's share grows above 1.
    """
    if not weights:
        raise ValueError(f"{NAME}: weights must be one tensor or more")
    for weight in weights:
        check.floating(NAME, weight, "weights")
    check.number(NAME, "sparsity", sparsity, 0.0, 1.0)
    check.size(NAME, "minimum", minimum, least=0)
    pool = torch.cat([weight.detach().abs().flatten().double() for weight in weights])
    threshold = _threshold(pool, sparsity)
    masks = [weight.detach().abs().double() >= threshold for weight in weights]
    if minimum:
        shares = _shares([w.numel() for w in weights], [1 - float(m.double().mean()) for m in masks], sparsity, minimum)
        masks = [
            weight.detach().abs().double() >= _threshold(weight.detach().abs().flatten().double(), share)
            for weight, share in zip(weights, shares, strict=True)
        ]
    return tuple(mask.to(weight.dtype) for weight, mask in zip(weights, masks, strict=True))


def _threshold(pool: Tensor, sparsity: float) -> Tensor:
    return pool.kthvalue(max(1, int(sparsity * pool.numel() + SLACK))).values


def _shares(sizes: list[int], shares: list[float], sparsity: float, minimum: int) -> list[float]:
    """Return the sparsity of each layer, so that none keeps fewer than ``minimum`` and all have ``sparsity``."""
    total = sum(sizes)
    most = sum(max(0, size - minimum) for size in sizes)
    if most < sparsity * total:
        raise ValueError(
            f"{NAME}: minimum={minimum} leaves at most {most} of {total} weights to go, but sparsity={sparsity} wants "
            f"{sparsity * total:.0f}"
        )
    shares = [0.0 if size < minimum else share for size, share in zip(sizes, shares, strict=True)]
    caps = [1.0 if size == minimum else max(0.0, 1 - minimum / max(size, 1)) for size in sizes]

    def reached() -> float:
        return sum(size * share for size, share in zip(sizes, shares, strict=True)) / total

    while True:
        scale = sparsity / reached() if reached() else 0.0
        shares = [min(share * scale, cap) for share, cap in zip(shares, caps, strict=True)]
        if reached() >= sparsity - SLACK or not scale:
            return shares
        if all(share in (0.0, cap) for share, cap in zip(shares, caps, strict=True)):  # the others take the rest
            idle = sum(size for size, share, cap in zip(sizes, shares, caps, strict=True) if share == 0 < cap)
            rest = (sparsity - reached()) * total / idle
            shares = [share or min(rest, cap) for share, cap in zip(shares, caps, strict=True)]
