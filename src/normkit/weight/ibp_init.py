"""IBP initialization: weights under which interval bounds grow no wider from layer to layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate

NAME = "ibp-init"


@method(
    NAME,
    paper="Fast Certified Robust Training with Short Warmup (Shi et al., 2021), arXiv 2103.17268",
    shape="C I",
    over="",
)
def ibp_init(noise: Tensor) -> Tensor:
    """Scale standard normal noise by sqrt(2 pi) / fan_in.

    For certified training with ReLUs: the mean width of interval bounds is the same behind a layer as in front of it.
    The weights fall with fan_in, not with its root, so activations fade with depth; take ``ibp-batchnorm`` with it.

    Args:
        noise: of the weight's shape, two axes or more; fan_in is the product of all sizes but the first.

    :func:`ibp_init_` does so to a parameter, or to all weights of a model but the last.

    Fast Certified Robust Training with Short Warmup (Shi, Wang, Zhang, Yi, Hsieh, 2021), arXiv 2103.17268.
    """
    check.floating(NAME, noise, "noise")
    if noise.dim() < 2:
        raise ValueError(f"{NAME}: noise must have two axes or more, but its shape is {tuple(noise.shape)}")
    return (accurate(noise) * (math.sqrt(2 * math.pi) / math.prod(noise.shape[1:]))).to(noise.dtype)


@torch.no_grad()
def ibp_init_(target: Tensor | nn.Module, generator: torch.Generator | None = None) -> None:
    """Start a weight in place, or those of a model: all of two axes or more but the last, the classifier's.

    A layer whose input is a ReLU of a sum of two branches wants half of its weight: halve it afterwards.
    """
    if isinstance(target, nn.Module):
        weights: Sequence[Tensor] = [p for p in target.parameters() if p.dim() > 1][:-1]
    else:
        weights = [target]
    for weight in weights:
        noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype, device=weight.device)
        weight.copy_(ibp_init(noise))
