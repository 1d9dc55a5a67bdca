"""Filter normalization: random directions through a network, as long as its filters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate

NAME = "filter-normalization"
KINDS = ("filter", "layer", "weight", "dfilter", "dlayer")
TINY = 1e-10


@method(
    NAME,
    paper="Visualizing the Loss Landscape of Neural Nets (Li et al., 2018), arXiv 1712.09913",
    shape="C I",
    over="I",
    inputs={"weight": "C I"},
    exempt={"gradcheck": "it is taken of values, without a gradient"},
)
@torch.no_grad()
def filter_normalization(direction: Tensor, weight: Tensor, *, norm: str = "filter", ignore: str = "biasbn") -> Tensor:
    """Give each filter of a direction the length that the weight's filter has.

    For plots of the loss around a minimum, loss(weights + a direction): without it a network of large weights looks
    flatter than the same one of small weights. Filters are slices of the first axis, rows of a linear layer:

        filter   d_i |w_i| / (|d_i| + 1e-10)       dfilter   d_i / (|d_i| + 1e-10)
        layer    d |w| / |d|                       dlayer    d / |d|
        weight   d w

    Args:
        direction: drawn from N(0, 1).
        weight: the parameter, of the same shape.
        norm: which of these.
        ignore: ``"biasbn"``: the direction of a vector (biases, norms) is 0; anything else: the parameter itself, as
            in the authors' code.

    Visualizing the Loss Landscape of Neural Nets (Li et al., 2018), arXiv 1712.09913.
    """
    check.floating(NAME, direction, "direction")
    check.values(NAME, "weight", weight, direction.shape, direction)
    check.choice(NAME, "norm", norm, KINDS)
    if direction.dim() <= 1:
        return torch.zeros_like(direction) if ignore == "biasbn" else weight.detach().to(direction.dtype, copy=True)
    d, w = accurate(direction), accurate(weight)
    if norm == "weight":
        return (d * w).to(direction.dtype)
    axes = tuple(range(1, d.dim())) if "filter" in norm else tuple(range(d.dim()))
    own, target = (torch.linalg.vector_norm(x, dim=axes, keepdim=True) for x in (d, w))
    share = (1 if norm.startswith("d") else target) / (own + TINY if "filter" in norm else own)
    return (d * share).to(direction.dtype)


def random_direction(
    model: nn.Module, *, norm: str = "filter", ignore: str = "biasbn", generator: torch.Generator | None = None
) -> dict[str, Tensor]:
    """Draw a normalized direction for each parameter of a model, by name."""
    directions = {}
    for name, p in model.named_parameters():
        direction = torch.randn(p.shape, generator=generator, dtype=p.dtype, device=p.device)
        directions[name] = filter_normalization(direction, p.detach(), norm=norm, ignore=ignore)
    return directions
