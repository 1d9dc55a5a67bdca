"""Switchable normalization: instance, layer and batch statistics, mixed by learned shares."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.batch._channelwise import Channelwise
from normkit.catalog import method
from normkit.statistics import Moments, moments


@method(
    "switchable-norm",
    paper="Differentiable Learning-to-Normalize via Switchable Normalization (Luo et al., 2018), arXiv 1806.10779",
    evidence="equations",
    shape="N C +",
    over="N *",
    replaces=("batchnorm", "groupnorm", "instancenorm"),
    aliases={"switchnorm": {}, "SwitchNorm1d": {"vectors": True}, "SwitchNorm2d": {}, "SwitchNorm3d": {}},
    invariant=("shift", "scale"),
    provenance="the authors' equations in float64 in tests/activation/test_batch_neighbours.py",
)
class SwitchableNorm(Channelwise):
    """Normalize with a learned mixture of the instance's, the layer's and the batch's mean and variance.

    For networks that shall find the norm of each layer by themselves. Where batches are always small, leave the batch's
    out by ``batch=False``.

    There are moments of a channel of a sample (over space), of a sample (over channels and space) and of a channel
    (over samples and space). The last ones are running in evaluation. With these,

        mean = sum of softmax(mean_weight) means,      var = sum of softmax(var_weight) variances
        y = weight * (x - mean) / sqrt(var + eps) + bias

    The variance over space is unbiased, and the others are built from it, as in the authors' code.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance under the root.
        momentum: share of the NEW batch in the running moments; the authors' 0.9 (0.997 for vectors and volumes) is
            the share of the old ones.
        batch: mix in the batch's moments; off leaves two shares, of instance and layer, and no running moments.
        vectors: for input ``(N, C)``, which has no instance moments: two shares, of layer and batch, their variances
            unbiased.
        affine: learn ``weight`` and ``bias``.
        sync: join the batch's moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C, *space)``, or ``(N, C)`` with ``vectors``. The running variance starts at 0, as the authors'.

    Differentiable Learning-to-Normalize via Switchable Normalization (Luo et al., 2018), arXiv 1806.10779.

    Differs from the authors' code in: variances are sums of squared differences, exact at large offsets; a single
    position has the variance 0, where theirs is NaN.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        batch: bool = True,
        vectors: bool = False,
        affine: bool = True,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(num_features, eps, momentum, affine, sync, process_group)
        self.batch, self.vectors = bool(batch), bool(vectors)
        if vectors and not batch:
            raise ValueError("SwitchableNorm: batch must be True with vectors, which leave nothing else to mix")
        shares = 3 if batch and not vectors else 2
        self.mean_weight = nn.Parameter(torch.ones(shares))
        self.var_weight = nn.Parameter(torch.ones(shares))
        if batch:
            self.keep(running_mean=torch.zeros(num_features), running_var=torch.zeros(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running moments."""
        axes = (2, 2) if self.vectors else (3, None)
        check.channels_first(self, x, self.num_features, *axes)
        pairs = self._of_vectors(x) if self.vectors else self._of_images(x)
        mean = _mix(self.mean_weight, [mean for mean, _ in pairs], x)
        var = _mix(self.var_weight, [var for _, var in pairs], x)
        return ops.normalize_with(x, mean, var, self.weight, self.bias, eps=self.eps)

    def _of_images(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Moments of instance, layer and batch, each of a shape that broadcasts to (N, C)."""
        own = ops.instance_moments(x)
        var = own.unbiased()
        layer = moments(own.mean, (1,))
        pairs = [(own.mean, var), ((layer.mean)[:, None], (var.mean(1) + layer.var)[:, None])]
        return [*pairs, self._batch(own.mean, var)] if self.batch else pairs

    def _of_vectors(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        layer = moments(x, (1,))
        return [(layer.mean[:, None], layer.unbiased()[:, None]), self._batch(statistics.accurate(x), None)]

    def _batch(self, means: Tensor, var: Tensor | None) -> tuple[Tensor, Tensor]:
        """Moments of the batch from those of its samples, or the running ones."""
        if not self.training:
            return statistics.accurate(self.running_mean), statistics.accurate(self.running_var)
        if self._alone() and means.shape[0] == 1 and var is None:
            raise ValueError("SwitchableNorm: x is a single vector, which has no variance; training needs more")
        between = moments(means, (0,), within=var, sync=self.sync, group=self.process_group)
        spread = between.unbiased() if var is None else between.var
        batch = Moments(between.mean, spread, between.count)
        self.move(batch.count, running_mean=batch.mean, running_var=batch.var)
        return batch.mean, batch.var


def _mix(weight: Tensor, parts: list[Tensor], x: Tensor) -> Tensor:
    """Mix numbers that broadcast to (N, C) by the softmax of a weight each."""
    shares = torch.softmax(statistics.accurate(weight), 0)
    mixed = sum(share.to(part.dtype) * part for share, part in zip(shares, parts, strict=True))
    return mixed.expand(x.shape[:2])
