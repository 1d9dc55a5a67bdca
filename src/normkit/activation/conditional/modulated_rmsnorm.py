"""RMSNorm whose scale and shift are handed in."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate


@method(
    "modulated-rmsnorm",
    paper="Root Mean Square Layer Normalization (Zhang and Sennrich, 2019), arXiv 1910.07467, modulated as in "
    "diffusion transformers",
    evidence="library",
    shape="N L C",
    over="C",
    inputs={"scale": "N C", "shift?": "N C"},
    replaces=("rmsnorm",),
    aliases=("LigerModulatedRMSNorm",),
    called={
        "Liger's LigerModulatedRMSNorm": "hidden_size=dim eps offset elementwise_affine=affine",
    },
)
class ModulatedRMSNorm(Norm):
    """Divide each vector by its root mean square and apply a gain, then a scale and a shift from outside.

    For diffusion transformers whose scale and shift are computed elsewhere, such as Lumina and Qwen-Image. Where the
    norm should own the linear layer of the condition, take ``adaln-continuous`` with ``norm="rmsnorm"``, or
    ``adaptive-rmsnorm-zero`` with gates.

    Over the last axis,

        y = x / sqrt(mean(x²) + eps) * (offset + weight) * (1 + scale) + shift

    Args:
        dim: size of the last axis.
        eps: added to the mean square under the root.
        offset: the gain is ``offset + weight``, and ``weight`` starts at ``1 - offset``.
        affine: learn ``weight``; without it there is no gain, whatever the offset.

    ``norm(x, scale, shift)``, or without the shift, scale and shift each in one of these shapes:

        (dim,)       one for all
        that of x    one for each vector
        (N, dim)     for x (N, L, dim), one for each sample
        (M, dim)     for x (R, dim), R a multiple of M: row r takes number r // (R / M)

    Root Mean Square Layer Normalization (Zhang, Sennrich, 2019), arXiv 1910.07467.

    Differs from Liger's code in: half precision is rounded once, at the end.
    """

    weight: nn.Parameter | None

    def __init__(self, dim: int, *, eps: float = 1e-6, offset: float = 0.0, affine: bool = True):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        offset = check.number(self, "offset", offset, -check.LARGEST, check.LARGEST)
        self.rule = ops.Row(eps=check.eps(self, eps), offset=offset)
        self.register_parameter("weight", nn.Parameter(torch.full((dim,), 1 - offset)) if affine else None)

    def forward(self, x: Tensor, scale: Tensor, shift: Tensor | None = None) -> Tensor:
        """Normalize ``x`` and modulate it with ``scale`` and ``shift``."""
        check.features_last(self, x, self.dim)
        gain = 1 + self._fit("scale", scale, x)
        added = None if shift is None else self._fit("shift", shift, x)
        h = ops.row_norm(accurate(x), self.weight, rule=self.rule)
        return (h * gain if added is None else torch.addcmul(added, h, gain)).to(x.dtype)

    def _fit(self, name: str, modulation: Tensor, x: Tensor) -> Tensor:
        """A scale or a shift in a shape that broadcasts with ``x``, in the type that statistics are taken in."""
        check.floating(self, modulation, name)
        check.shape(self, name, modulation, modulation.shape, x)
        values = modulation.to(accurate(x[:0]).dtype)
        if modulation.shape in (x.shape, x.shape[-1:]):
            return values
        if modulation.dim() == 2 and modulation.shape[1] == self.dim:
            if x.dim() == 3 and modulation.shape[0] == x.shape[0]:
                return values.unsqueeze(1)
            if x.dim() == 2 and modulation.shape[0] > 0 and x.shape[0] % modulation.shape[0] == 0:
                return values.repeat_interleave(x.shape[0] // modulation.shape[0], 0)
        raise ValueError(
            f"ModulatedRMSNorm: {name} must be ({self.dim},), that of x, or a row of {self.dim} for each sample, "
            f"for a matrix x for each of equal runs of rows; x is {tuple(x.shape)}, {name} {tuple(modulation.shape)}"
        )
