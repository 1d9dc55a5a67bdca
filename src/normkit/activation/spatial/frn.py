"""Filter response normalization."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm

LEARNED_EPS = 1e-4  # where the learned eps starts


def _timm(features: int) -> nn.Module:
    from timm.layers import FilterResponseNormTlu2d as Peer

    return Peer(features, eps=1e-6)


@method(
    "frn",
    paper="Filter Response Normalization Layer: Eliminating Batch Dependence in the Training of Deep Neural "
    "Networks (Singh, Krishnan, 2019), arXiv 1911.09737",
    evidence="abstract",
    shape="N C *",
    over="*",
    aliases={"filter-response-norm": {}, "FilterResponseNormTlu2d": {"eps": 1e-5}},
    replaces=("batchnorm", "groupnorm"),
    invariant=("scale",),
    provenance="equations as in timm; the default eps and the learned eps are recalled, not read from the paper",
    peer=_timm,
)
class FRN(Norm):
    """Divide each channel of each sample by its root mean square over space, then cut it off at a learned threshold.

    For convolutional networks at any batch size, in place of norm and ReLU both. Unlike ``batchnorm`` it does not fold
    away at inference.

    With nu² the mean of x² over space,

        z = weight * x / sqrt(nu² + eps) + bias,    y = max(z, tau)

    With ``learnable_eps`` the root holds |``learned_eps``| instead, a learned number, for maps of 1x1 where the
    quotient is nearly the sign of x.

    Args:
        num_features: C, the number of channels.
        eps: added to the mean square under the root.
        apply_act: cut off at ``tau``.
        learnable_eps: learn the number under the root; ``eps`` is not used then.

    Input ``(N, C)`` or ``(N, C, *space)``. Weight decay should leave all parameters out.

    Filter Response Normalization Layer (Singh, Krishnan, 2019), arXiv 1911.09737. The learned eps, one a layer, is
    reconstructed. timm's FilterResponseNormAct2d is ``apply_act=False`` and ``eps=1e-5`` with a ReLU behind it.
    """

    def __init__(self, num_features: int, *, eps: float = 1e-6, apply_act: bool = True, learnable_eps: bool = False):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.apply_act, self.learnable_eps = bool(apply_act), bool(learnable_eps)
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.tau = nn.Parameter(torch.zeros(num_features)) if apply_act else None
        self.learned_eps = nn.Parameter(torch.full((1,), LEARNED_EPS)) if learnable_eps else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``."""
        check.channels_first(self, x, self.num_features)
        eps = self.eps if self.learned_eps is None else self.learned_eps.abs()
        return ops.filter_response_norm(x, self.weight, self.bias, self.tau, eps=eps)
