"""Alpha batch normalization: at test time, source statistics mixed with the test batch's."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, statistics
from normkit.activation.batch._channelwise import Channelwise
from normkit.catalog import method
from normkit.ops import channel


@method(
    "alpha-batchnorm",
    paper="Test-time Batch Statistics Calibration for Covariate Shift (You, Li, Zhao, 2021), arXiv 2110.04065",
    evidence="abstract",
    shape="N C *",
    over="N *",
    replaces=("batchnorm",),
    provenance="no public code of the authors: the layer follows another group's code, core_loss the abstract",
    exempt={
        "gradcheck eval": "the mixed moments are constants for the gradient, as in the code this follows",
        "one": "one value a channel has no variance to mix in",
    },
)
class AlphaBatchNorm(Channelwise):
    """Normalize each channel by the batch; in evaluation mix the running moments with the test batch's.

    For a trained network whose test images come from elsewhere: corrupted, or of another camera. Training is batch
    normalization. In evaluation, with w the ``target_weight`` and the test batch's UNBIASED variance, per channel,

        mean = (1 - w) running_mean + w mean_test,   var = (1 - w) running_var + w var_test
        y = weight * (x - mean) / sqrt(var + eps) + bias

    No gradient flows through mean and var, and evaluation changes no state: each batch is mixed anew.

    Args:
        num_features: C, the number of channels.
        target_weight: share of the test batch, 0 for plain evaluation, 1 to forget the source; may be changed later.
        eps: added to the variance under the root.
        momentum: share of the NEW batch in the running moments.
        affine: learn ``weight`` and ``bias``.
        sync: join the batch's moments, the test batch's too, over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C)`` or ``(N, C, *space)``; one value a channel is refused. The paper's second part is
    :func:`core_loss`.

    Test-time Batch Statistics Calibration for Covariate Shift (You, Li, Zhao, 2021), arXiv 2110.04065. No public code
    of its authors: the layer agrees with AlphaBatchNorm of mariodoebler/test-time-adaptation.

    Differs from other writings of it, which use alpha for either share, in: the weight is the test batch's. A batch
    with NaN or infinity enters the running moments, as in torch's BatchNorm; an empty one leaves them as they are.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        target_weight: float = 0.1,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(num_features, eps, momentum, affine, sync, process_group)
        self.target_weight = check.number(self, "target_weight", target_weight, 0, 1)
        self.keep_moments(num_features, batches=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running moments."""
        check.channels_first(self, x, self.num_features)
        self._require_spread(x)
        if not self.training:
            mean, var = self._mix(x)
            return channel.normalize_with(x, mean, var, self.weight, self.bias, eps=self.eps)
        y, stats = channel.batch_norm(x, self.weight, self.bias, eps=self.eps, sync=self.sync, group=self.process_group)
        self.follow(stats)
        return y

    def _mix(self, x: Tensor) -> tuple[Tensor, Tensor]:
        moments = self._moments(x.detach())
        source = statistics.accurate(self.running_mean), statistics.accurate(self.running_var)
        target = moments.mean, moments.unbiased()
        mean, var = (torch.lerp(s.to(t.dtype), t, self.target_weight) for s, t in zip(source, target, strict=True))
        return mean, var


def core_loss(logits: Tensor, *, sync: bool = False, process_group=None) -> Tensor:
    """Class correlation: how much the classes of a test batch are confused with each other, to be made small.

    With P = softmax of ``logits`` (N, K) and samples weighted by h = 1 + exp(-entropy), the rows of A = Pᵀ diag(h) P
    are divided by their sums; the loss is the mean of 1 - A[k, k] over the classes. Only the batch norms' weights and
    biases are to be trained on it, online, one step a batch. With ``sync`` A is added up over the processes.

    A stand-in for the CORE objective of Test-time Batch Statistics Calibration for Covariate Shift (You, Li, Zhao,
    2021), made from its abstract; no code of the authors was seen. Do not report results with it as the paper's.

    >>> core_loss(torch.tensor([[40.0, 0.0], [0.0, 40.0]])).item() < 1e-6
    True
    """
    check.floating("core_loss", logits, "logits")
    if logits.dim() != 2:
        raise ValueError(f"core_loss: logits must have shape (N, K), but its shape is {tuple(logits.shape)}")
    log_p = torch.log_softmax(statistics.accurate(logits), dim=1)
    p = log_p.exp()
    certainty = 1 + (p * log_p).sum(1, keepdim=True).exp()
    with statistics.full_precision(logits):
        correlation = (p * certainty).T @ p
    if sync:
        correlation = statistics.sum_over_processes(correlation, process_group)
    total = correlation.sum(1)
    # a class that no sample gives any probability is confused with none
    share = torch.where(total > 0, correlation.diagonal() / torch.where(total > 0, total, 1), 1)
    return (1 - share).mean()
