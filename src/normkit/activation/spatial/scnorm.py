"""SCNorm: mix an image's raw and normalized amplitudes, keep its phase."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.spatial import _fourier
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.sharded import Parts, by_parts

TEMPERATURE = 0.1  # fixed in the authors' code


@method(
    "scnorm",
    paper="Decompose, Adjust, Compose: Effective Normalization by Playing with Frequency for Domain Generalization "
    "(Lee et al., 2023), arXiv 2303.02328",
    shape="N C H W",
    over="H W",
    replaces=("instancenorm", "batchnorm"),
    exempt={
        "batches threads": "torch's Fourier transform adds up in another order on more threads",
        "batches gains": "torch's Fourier transform adds up in another order on more threads",
    },
    messages="the Fourier transform of an image needs all of it",
)
class SCNorm(Norm):
    """Replace each channel's Fourier amplitudes by a learned mix of raw and instance-normalized ones.

    For domain generalization: amplitudes carry style, phases carry content, and how much style goes is learned. With n
    the instance norm of x (biased variance, no affine) and (u0, u1) = softmax(gate / 0.1), per sample and channel,

        y = weight * inverse_fft( (u0 |fft(n)| + u1 |fft(x)|) * phase(fft(x)) ) + bias

    A power |.|² below 1e-5 counts as 1e-5, and so does a real part nearer to 0 than 1e-5, whatever its sign; no
    gradient passes there. The mean of n is 0, so its amplitude at frequency 0 is that floor's root.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance under the root.
        channels_last: True for input of shape (N, H, W, C).

    Input ``(N, C, H, W)``, or ``(N, H, W, C)`` with ``channels_last``; the transforms run in float32 or float64.

    Decompose, Adjust, Compose: Effective Normalization by Playing with Frequency for Domain Generalization (Lee et al.,
    2023), arXiv 2303.02328: style controlling normalization.
    """

    def __init__(self, num_features: int, *, eps: float = 1e-5, channels_last: bool = False):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.channels_last = bool(channels_last)
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.gate = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        """Mix the amplitudes of ``x``."""
        if not self.channels_last:
            check.channels_first(self, x, self.num_features, 4, 4)
            return self._mix(x)
        check.features_last(self, x, self.num_features)
        check.shape(self, "x", x, (None, None, None, self.num_features))
        return self._mix(x.movedim(-1, 1)).movedim(1, -1)

    @by_parts
    def _mix(self, x: Tensor) -> Tensor:
        return self._normalize(x, self.weight, self.bias, self.gate)

    def over_parts(self, part: Parts) -> Tensor | None:
        """Mix the amplitudes of images whose channels are cut; a Fourier transform needs all of space."""
        if part.along((2, 3)):
            return None
        weight, bias = (part.parameter(self, n, p, 1) for n, p in (("weight", self.weight), ("bias", self.bias)))
        return self._normalize(part.local, weight, bias, part.shared(self, "gate", self.gate))

    def _normalize(self, x: Tensor, weight: Tensor | None, bias: Tensor | None, gate: Tensor) -> Tensor:
        exact = statistics.accurate(x)
        raw = _fourier.spectrum(exact)
        normalized = _fourier.spectrum(ops.instance_norm(exact, eps=self.eps))
        share = torch.softmax(gate.to(exact.dtype) / TEMPERATURE, 0)
        amplitude = share[0] * _fourier.amplitude(normalized) + share[1] * _fourier.amplitude(raw)
        return _fourier.compose(_fourier.phase(raw), amplitude, weight, bias, like=x)
