"""FIN: a gain and a shift that run round an ellipse with an angle."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "fin",
    paper="CoMoGAN: continuous model-guided image-to-image translation (Pizzati et al., 2021), arXiv 2103.06879",
    shape="N C +",
    over="+",
    inputs={"phi": "N"},
    invariant=("shift", "scale"),
)
class FIN(Norm):
    """Normalize each channel of each sample, then apply a gain and a shift that are periodic in an angle.

    For image translation along a cycle such as the time of day: after a full turn gain and shift are back where they
    began. A condition that is no angle needs ``adain-modulated`` or ``film``.

    Functional instance normalization. With n the instance norm of x,

        y = (weight_phase * cos(phi) + weight) * n + bias_phase * sin(phi) + bias

    cos for the gain, sin for the shift; all four parameters have shape (C,).

    Args:
        num_features: C.
        eps: added to the biased variance under the root.

    Input x ``(N, C, *space)`` and phi ``(N,)`` in radians.

    CoMoGAN: continuous model-guided image-to-image translation (Pizzati et al., 2021), arXiv 2103.06879.

    Differs from the authors' code in: the input is the angle, not its cosine and sine. The paper's linear form is left
    out.
    """

    def __init__(self, num_features: int, *, eps: float = 1e-5):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.weight_phase = nn.Parameter(torch.zeros(num_features))
        self.bias_phase = nn.Parameter(torch.zeros(num_features))

    def forward(self, x: Tensor, phi: Tensor) -> Tensor:
        """Normalize ``x`` and modulate it for the angles ``phi``."""
        check.channels_first(self, x, self.num_features, 3)
        check.values(self, "phi", phi, x.shape[:1], x)
        angle = statistics.accurate(phi).unsqueeze(1)
        gain = self.weight_phase * angle.cos() + self.weight
        shift = self.bias_phase * angle.sin() + self.bias
        return ops.instance_norm(x, gain, shift, eps=self.eps)
