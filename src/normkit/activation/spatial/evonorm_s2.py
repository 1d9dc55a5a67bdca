"""EvoNorm-S2."""

from __future__ import annotations

from torch import nn

from normkit import check
from normkit.activation.spatial._evonorm import EvoNormS
from normkit.catalog import method


def _timm(features: int) -> nn.Module:
    from timm.layers import EvoNorm2dS2 as Peer

    return Peer(features, groups=2)


@method(
    "evonorm-s2",
    paper="Evolving Normalization-Activation Layers (Liu et al., 2020), arXiv 2004.02967",
    evidence="library",
    shape="N C *",
    over="C/G *",
    aliases=("EvoNorm2dS2",),
    example={"num_groups": 2},
    replaces=("batchnorm", "groupnorm"),
    provenance="no authors' code; as in timm",
    peer=_timm,
)
class EvoNormS2(EvoNormS):
    """Apply SiLU and divide by the root mean square of the group's input.

    In place of norm and activation both, for batches of any size. Unlike ``batchnorm`` it does not fold into the layer
    beside it.

    With s² the mean of x² over a group's channels and space, per sample, plus eps,

        y = weight * x * sigmoid(x) / s + bias

    Args:
        num_features: C, the number of channels.
        num_groups: number of groups of neighbouring channels, a divisor of C.
        eps: added under the root.
        apply_act: without it the layer is only weight * x + bias.

    Input ``(N, C)`` or ``(N, C, *space)``.

    Evolving Normalization-Activation Layers (Liu, Brock, Simonyan, Le, 2020), arXiv 2004.02967, appendix; there is no
    authors' code, timm's is followed.
    """

    center = False

    def __init__(self, num_features: int, *, num_groups: int = 32, eps: float = 1e-5, apply_act: bool = True):
        super().__init__(num_features, num_groups, eps, True, apply_act)
        check.divides(self, "num_groups", num_groups, "num_features", num_features)
