"""PCNorm: batch-normalize an image's amplitudes, keep its phase."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.spatial import _fourier
from normkit.activation.spatial._batch import BatchMoments
from normkit.catalog import method


@method(
    "pcnorm",
    paper="Decompose, Adjust, Compose: Effective Normalization by Playing with Frequency for Domain Generalization "
    "(Lee et al., 2023), arXiv 2303.02328",
    shape="N C H W",
    over="N H W",
    replaces=("batchnorm",),
    exempt={"offsets 1e6 gradients": "the transform rounds every frequency by as much as the mean, and so a phase"},
)
class PCNorm(BatchMoments):
    """Give each channel the Fourier amplitudes of its batch norm and the phases of the raw input.

    For domain generalization: phases carry content, which the norm shall leave alone. How much of the style goes is
    learned by ``scnorm``.

    With n the batch norm of x (biased variance, no affine, running moments in evaluation), per sample and channel,

        y = weight * inverse_fft( |fft(n)| * phase(fft(x)) ) + bias

    A power |.|² below 1e-5 counts as 1e-5, and so does a real part nearer to 0 than 1e-5, whatever its sign; no
    gradient passes there. Subtracting a mean touches frequency 0 alone, so y is the batch norm with the sign of that
    one bin taken from x.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance under the root.
        momentum: share of the NEW batch in the running moments; None averages all batches alike.
        sync: join the moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C, H, W)``; the transforms run in float32 or float64.

    Decompose, Adjust, Compose: Effective Normalization by Playing with Frequency for Domain Generalization (Lee et al.,
    2023), arXiv 2303.02328: phase consistent normalization.

    A batch with NaN or infinity enters the running averages, as in torch's BatchNorm.
    """

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self._keep_batch_moments(num_features, momentum, sync, process_group)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the amplitudes of ``x``; in training move the running moments."""
        check.channels_first(self, x, self.num_features, 4, 4)
        exact = statistics.accurate(x)
        normalized = ops.normalize_with(exact, *self._moments(exact, (0, 2, 3)), eps=self.eps)
        amplitude = _fourier.amplitude(_fourier.spectrum(normalized))
        phase = _fourier.phase(_fourier.spectrum(exact))
        return _fourier.compose(phase, amplitude, self.weight, self.bias, like=x)
