"""EvoNorm-S0."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.spatial._evonorm import EvoNormS, most_groups
from normkit.catalog import method


def _timm(features: int) -> nn.Module:
    from timm.layers import EvoNorm2dS0 as Peer

    return Peer(features, groups=most_groups(features, 32))


@method(
    "evonorm-s0",
    paper="Evolving Normalization-Activation Layers (Liu et al., 2020), arXiv 2004.02967",
    evidence="equations",
    shape="N C *",
    over="C/G *",
    aliases=("evonorm", "EvoNorm2dS0"),
    replaces=("batchnorm", "groupnorm"),
    provenance="the authors' TensorFlow code, restated",
    dialects={"divide": (False, True)},
    peer=_timm,
)
class EvoNormS0(EvoNormS):
    """Swish each channel with a learned slope and divide it by its group's standard deviation.

    In place of norm and activation both, for batches of any size. Unlike ``batchnorm`` it does not fold into the layer
    beside it.

    With s² the biased variance over a group's channels and space, per sample, plus eps,

        y = weight * x * sigmoid(v x) / s + bias

    x is not centered, only its variance is. A group is a run of neighbouring channels.

    Args:
        num_features: C, the number of channels.
        num_groups: the most groups; the largest number up to it that divides C is taken.
        eps: added to the variance under the root.
        affine: learn ``weight`` and ``bias``.
        apply_act: without it the layer is only weight * x + bias, as in the authors' code.
        divide: without the activation, divide by s still, as timm's ``EvoNorm2dS0a`` does.

    Input ``(N, C)`` or ``(N, C, *space)``.

    Evolving Normalization-Activation Layers (Liu, Brock, Simonyan, Le, 2020), arXiv 2004.02967.
    """

    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 32,
        eps: float = 1e-5,
        affine: bool = True,
        apply_act: bool = True,
        divide: bool = False,
    ):
        super().__init__(num_features, num_groups, eps, affine, apply_act)
        if divide and apply_act:
            raise ValueError(f"{type(self).__name__}: divide=True is for apply_act=False, not apply_act=True")
        self.divide = bool(divide)
        self.num_groups = most_groups(num_features, num_groups)
        self.v = nn.Parameter(torch.ones(num_features)) if apply_act else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalize and activate ``x``."""
        if not self.divide:
            return super().forward(x)
        check.channels_first(self, x, self.num_features)
        flat = statistics.accurate(x.new_zeros(self.num_features))  # a swish without slope halves
        twice = flat + 2 if self.weight is None else 2 * statistics.accurate(self.weight)
        bias = None if self.bias is None else statistics.accurate(self.bias)
        return ops.evonorm_s(x, self.num_groups, twice, bias, flat, eps=self.eps, center=True)

    def slope(self) -> Tensor | None:
        """The swish's learned slope."""
        return self.v
