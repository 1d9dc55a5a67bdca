"""CCNorm: batch-normalize an image's amplitudes, keep the phase of the input less a share of the mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.spatial import _fourier
from normkit.activation.spatial._batch import BatchMoments
from normkit.catalog import method

TEMPERATURE = 1e-6  # fixed in the authors' code


@method(
    "ccnorm",
    paper="Decompose, Adjust, Compose: Effective Normalization by Playing with Frequency for Domain Generalization "
    "(Lee et al., 2023), arXiv 2303.02328",
    shape="N C H W",
    over="N H W",
    replaces=("batchnorm",),
    exempt={"gradients gate": "it acts on the sign of one Fourier bin alone, so its gradient is zero"},
)
class CCNorm(BatchMoments):
    """Give each channel the Fourier amplitudes of its batch norm and the phases of the input less a share of its mean.

    For domain generalization: phases carry content.

    Let n be the batch norm of x (biased variance, no affine), and mean the channel's mean over the batch (running
    moments in evaluation). With u = softmax(gate / 1e-6), per sample and channel,

        y = weight * inverse_fft( |fft(n)| * phase(fft(x - u[0] mean)) ) + bias

    A power |.|² below 1e-5 counts as 1e-5, and so does a real part nearer to 0 than 1e-5, whatever its sign; no
    gradient passes there. u[1] is not used.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance under the root.
        momentum: share of the NEW batch in the running moments; None averages all batches alike.
        sync: join the moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C, H, W)``; the transforms run in float32 or float64.

    Decompose, Adjust, Compose: Effective Normalization by Playing with Frequency for Domain Generalization (Lee et al.,
    2023), arXiv 2303.02328: content controlling normalization.

    Differs from the paper, as the authors' code does, in: nothing is learned of the content. Subtracting a mean
    touches frequency 0 alone, so mean and gate decide the sign of that one bin, and the gate's gradient is zero.

    Differs from the authors' code in: that zero is exact. Theirs has what rounding leaves of it, about 0.2 in float32,
    which Adam takes for a full step: outputs move by 0.4. A batch with NaN or infinity enters the running averages, as
    in torch's BatchNorm.
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
        self.gate = nn.Parameter(torch.zeros(2))
        self._keep_batch_moments(num_features, momentum, sync, process_group)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the amplitudes of ``x``; in training move the running moments."""
        check.channels_first(self, x, self.num_features, 4, 4)
        exact = statistics.accurate(x)
        mean, var = self._moments(exact, (0, 2, 3))
        amplitude = _fourier.amplitude(_fourier.spectrum(ops.normalize_with(exact, mean, var, eps=self.eps)))
        share = torch.softmax(self.gate.to(exact.dtype) / TEMPERATURE, 0)[0]
        share = share.detach() + 0 * share  # as it acts on a sign: the temperature would make 1e6 times rounding of it
        phase = _fourier.phase(_fourier.spectrum(exact - (share * mean)[:, None, None]))
        return _fourier.compose(phase, amplitude, self.weight, self.bias, like=x)
