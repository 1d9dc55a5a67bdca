"""AdaGN: group normalization whose gain and shift come from a condition."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check, ops, statistics
from normkit.activation.conditional._map import BY_ROWS, run
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "adaptive-groupnorm",
    paper="Diffusion Models Beat GANs on Image Synthesis (Dhariwal, Nichol, 2021), arXiv 2105.05233",
    evidence="equations",
    shape="N C *",
    over="C/G *",
    inputs={"condition": "N condition_features"},
    example={"condition_features": 6, "num_groups": 2},
    replaces=("groupnorm",),
    aliases={"adagn": {}, "scale-shift-groupnorm": {}, "AdaGroupNorm": {"affine": False, "activation": False}},
    invariant=("shift", "scale"),
    provenance="the authors' and diffusers' equations in float64 in tests/activation/test_conditional_neighbours.py",
    exempt=BY_ROWS,
)
class AdaptiveGroupNorm(Norm):
    """Group-normalize an image, then scale and shift its channels by the time step and the class.

    For the convolutional U-nets of diffusion, whose blocks need the time step and the class. For tokens take
    ``adaptive-layernorm`` or ``adaln-zero``; where the condition differs from pixel to pixel, ``spade``.

    With h the group norm of x, learned gain and shift included,

        [scale, shift] = modulation(silu(condition)),        y = h * (1 + scale) + shift

    Args:
        num_features: C.
        condition_features: size of the condition, C by default.
        num_groups: a divisor of C.
        affine: learn ``weight`` and ``bias`` of the group norm, as the authors; diffusers' AdaGroupNorm does not.
        activation: SiLU in front of the linear layer, as the authors; diffusers' has none.
        eps: added to the variance under the root.

    Input x ``(N, C)`` or ``(N, C, *space)`` and condition ``(N, condition_features)``.

    Diffusion Models Beat GANs on Image Synthesis (Dhariwal, Nichol, 2021), arXiv 2105.05233.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        num_features: int,
        *,
        condition_features: int | None = None,
        num_groups: int = 32,
        affine: bool = True,
        activation: bool = True,
        eps: float = 1e-5,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        condition_features = num_features if condition_features is None else condition_features
        self.condition_features = check.size(self, "condition_features", condition_features)
        self.num_groups = check.size(self, "num_groups", num_groups)
        check.divides(self, "num_groups", num_groups, "num_features", num_features)
        self.activation, self.eps = bool(activation), check.eps(self, eps)
        self.register_parameter("weight", nn.Parameter(torch.ones(num_features)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features)) if affine else None)
        self.modulation = nn.Linear(condition_features, 2 * num_features)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Normalize ``x`` and modulate it with ``condition``."""
        check.channels_first(self, x, self.num_features)
        check.values(self, "condition", condition, (x.shape[0], self.condition_features), x)
        h = ops.group_norm(statistics.accurate(x), self.num_groups, self.weight, self.bias, eps=self.eps)
        vectors = run(self.modulation, F.silu(condition) if self.activation else condition).to(h.dtype)
        scale, shift = vectors.chunk(2, dim=-1)
        return ops.affine(h, 1 + scale, shift).to(x.dtype)
