"""Instance-batch normalization."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.spatial._batch import BatchMoments
from normkit.catalog import method


@method(
    "ibn",
    paper="Two at Once: Enhancing Learning and Generalization Capacities via IBN-Net (Pan et al., 2018), "
    "arXiv 1807.09441",
    shape="N C +",
    over="N *",
    replaces=("batchnorm",),
    aliases=("ibn-net", "instance-batch-norm"),
    invariant=("shift", "scale"),
)
class IBN(BatchMoments):
    """Instance-normalize the first channels of an image, batch-normalize the others.

    For recognition that shall hold up in another domain: the instance half drops contrast and style, the batch half
    keeps content. In the paper it takes the place of the first norm of a residual block, not in the last stage. With k
    = floor(C * ratio) and biased variances,

        y = weight * (x - mean) / sqrt(var + eps) + bias

    where mean and var are over space, per sample, for the channels 0 .. k - 1, and over samples and space for the rest;
    only these keep running moments, of shape (C - k,), for evaluation.

    Args:
        num_features: C, the number of channels.
        ratio: share of the channels that are instance-normalized, rounded down; from 0 to 1.
        eps: added to the variance under the root.
        momentum: share of the NEW batch in the running moments; None averages all batches alike.
        sync: join the batch half's moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C, *space)`` with at least one axis of space.

    Two at Once: Enhancing Learning and Generalization Capacities via IBN-Net (Pan et al., 2018), arXiv 1807.09441.

    Differs from the authors' code in: gain and shift are one pair for all channels, and every ratio works, where theirs
    loses channels below a half. A batch with NaN or infinity enters the running averages, as in torch's BatchNorm.
    """

    def __init__(
        self,
        num_features: int,
        *,
        ratio: float = 0.5,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.split = int(num_features * check.number(self, "ratio", ratio, 0, 1))
        self.eps = check.eps(self, eps)
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self._keep_batch_moments(num_features - self.split, momentum, sync, process_group)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the batch half's running moments."""
        check.channels_first(self, x, self.num_features, 3)
        exact = statistics.accurate(x)
        instance = ops.instance_moments(exact[:, : self.split])
        mean, var = self._moments(exact[:, self.split :], (0, *range(2, x.dim())))
        mean, var = (
            torch.cat([own.to(exact.dtype), shared.to(exact.dtype).expand(x.shape[0], -1)], 1)
            for own, shared in ((instance.mean, mean), (instance.var, var))
        )
        return ops.normalize_with(x, mean, var, self.weight, self.bias, eps=self.eps)
