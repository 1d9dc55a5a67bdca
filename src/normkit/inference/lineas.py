"""LinEAS: activations steered by an affine map of each layer, learned for all layers together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate


@method(
    "lineas",
    paper="LinEAS: End-to-end Learning of Activation Steering with a Distributional Loss (Rodriguez et al., 2025), "
    "arXiv 2503.10679",
    evidence="equations",
    shape="... C",
    over="",
    provenance="the paper's equations; no code of the authors was to be had",
)
class LinEAS(Method):
    """Map activations by a learned gain and shift, so that their distribution becomes another one.

    For steering a trained model by some 32 unpaired samples of what it does and of what it should do. Its weights stay
    as they are, and ``strength`` sets how far to go. The maps act on every input alike, also where nothing was wrong.

    A map comes behind each norm. All are learned together, each layer compared by :meth:`wasserstein` with what the
    target samples have there without maps; see ``steering_loss``, and ``steered`` to use them.

        y = (1 - strength) x + strength (weight * x + bias)

    :meth:`shrink` after each step of the optimizer leaves most coordinates, and most layers, at the identity, where all
    start.

    Args:
        dim: D.
        sparsity: how far a step of size 1 moves each number to the identity.
        group_sparsity: how far it moves the layer as a whole.

    ``strength`` is an attribute, 1 at first, 0 to switch the map off. State: ``weight`` and ``bias`` (D,).

    LinEAS (2025), arXiv 2503.10679.
    """

    def __init__(self, dim: int, *, sparsity: float = 0.0, group_sparsity: float = 0.0):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.sparsity = check.number(self, "sparsity", sparsity, 0.0)
        self.group_sparsity = check.number(self, "group_sparsity", group_sparsity, 0.0)
        self.strength = 1.0
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``x``, whose last axis has ``dim`` entries."""
        check.features_last(self, x, self.dim)
        wide = accurate(x)
        mapped = accurate(self.weight) * wide + accurate(self.bias)
        return (wide + self.strength * (mapped - wide)).to(x.dtype)

    def wasserstein(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the squared Wasserstein distance of two sets (N, D), (M, D), coordinate by coordinate, summed.

        Of sets that are not of one size the quantiles of the larger are taken where the smaller has its own.
        """
        check.values(self, "x", x, (None, self.dim), x)
        check.values(self, "y", y, (None, self.dim), x)
        u, v = (accurate(value).sort(0).values for value in (x, y))
        if len(u) != len(v):
            steps = (torch.arange(min(len(u), len(v)), device=u.device, dtype=u.dtype) + 0.5) / min(len(u), len(v))
            u, v = (_quantiles(value, steps) for value in (u, v))
        return (u - v).square().mean(0).sum().to(x.dtype)

    @torch.no_grad()
    def shrink(self, lr: float) -> None:
        """Move gain and shift towards the identity, after a step of size ``lr``."""
        off = torch.stack([self.weight - 1, self.bias])
        off = off.sign() * (off.abs() - lr * self.sparsity).clamp(min=0)
        length = off.norm()
        off = off * (1 - lr * self.group_sparsity / torch.where(length > 0, length, 1)).clamp(min=0)
        self.weight.copy_(1 + off[0])
        self.bias.copy_(off[1])


def _quantiles(ordered: Tensor, steps: Tensor) -> Tensor:
    """Values between those of a sorted set (N, D), which stand at (i + 1/2) / N."""
    at = (steps * len(ordered) - 0.5).clamp(0, len(ordered) - 1)
    low = at.floor().long()
    high = (low + 1).clamp(max=len(ordered) - 1)
    return torch.lerp(ordered[low], ordered[high], (at - low).unsqueeze(1))
