"""Batch normalization."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from normkit import check, ops, statistics
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.channel import batch_norm_in_one_call, batch_norm_with_step
from normkit.running import Running


@method(
    "batchnorm",
    paper="Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift (Ioffe, "
    "Szegedy, 2015), arXiv 1502.03167",
    evidence="library",
    shape="N C *",
    over="N *",
    replaces=("groupnorm", "instancenorm"),
    aliases={
        "BatchNorm1d": {},
        "BatchNorm2d": {},
        "BatchNorm3d": {},
        "SyncBatchNorm": {"sync": True},
        "bn": {},
        "bn2d": {},
    },
    called={
        "torch.nn.BatchNorm2d": "num_features eps momentum affine track_running_stats device dtype",
        "torch.nn.SyncBatchNorm": "num_features eps momentum affine track_running_stats process_group device dtype",
    },
    dialects={"unbiased": (True, False)},
    invariant=("shift", "scale"),
    peer=lambda features: nn.BatchNorm2d(features),
)
class BatchNorm(Running, Norm, _BatchNorm):
    """Center each channel on the batch's mean and divide it by the batch's standard deviation.

    For convolutional networks with batches of at least a dozen samples; folds into the neighbouring layer at inference.
    With smaller batches its statistics are noise: take ``groupnorm``.

    One class for vectors, sequences, images and volumes. Per channel, over all n values of batch and space,

        y = weight * (x - mean) / sqrt(var + eps) + bias

    with the biased variance. Evaluation uses the running moments, or the batch's own without ``track_running_stats``.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance under the root.
        momentum: share of the NEW batch in the running moments; None averages all batches alike.
        affine: learn ``weight`` and ``bias``.
        bias: learn ``bias``; without effect when ``affine`` is off.
        track_running_stats: keep running moments for evaluation; switched off later, they rest in training.
        sync: join the moments over the processes of ``process_group``, as SyncBatchNorm does.
        process_group: the processes to join, default all.
        channels_last: the channels are the last axis of ``x``, not axis 1: tokens, as PatchTST has them.
        unbiased: the running variance takes each batch's divided by n - 1, as torch's; without, divided by n, as
            flax's and many that are written by hand.

    Input ``(N, C)`` or ``(N, C, *space)`` with any number of axes, or ``(N, *space, C)`` with ``channels_last``. In
    training a channel needs more than one value.

    Batch Normalization: Accelerating Deep Network Training (Ioffe, Szegedy, 2015), arXiv 1502.03167.

    It is found as torch's own by what looks for them: ``torch.optim.swa_utils.update_bn``, FSDP's mixed precision, and
    ``nn.SyncBatchNorm.convert_sync_batchnorm``, in the place of which ``sync=True`` also takes ``channels_last`` and
    ``unbiased=False``: the conversion drops both, with a warning.

    The state dictionary is that of torch.nn.BatchNorm1d, 2d and 3d. A batch with NaN or infinity enters the running
    averages, as in torch's BatchNorm; an empty one leaves them as they are.
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    unbiased = True  # of those pickled before there was a choice

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        bias: bool = True,
        track_running_stats: bool = True,
        sync: bool = False,
        process_group=None,
        channels_last: bool = False,
        unbiased: bool = True,
    ):
        super().__init__(
            check.size(self, "num_features", num_features),
            check.eps(self, eps),
            None if momentum is None else check.number(self, "momentum", momentum, 0, 1),
            bool(affine),
            bool(track_running_stats),
        )
        self.sync, self.process_group = sync, process_group
        self.channels_last, self.unbiased = bool(channels_last), bool(unbiased)
        if not bias:
            self.register_parameter("bias", None)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running moments."""
        if self.channels_last:
            check.features_last(self, x, self.num_features, least=2)
            return self._normalize(x.movedim(-1, 1)).movedim(1, -1)
        check.channels_first(self, x, self.num_features)
        return self._normalize(x)

    def _normalize(self, x: Tensor) -> Tensor:
        if not self.training and self.running_mean is not None and self.running_var is not None:
            given = self.running_mean, self.running_var
            y = batch_norm_in_one_call(x, self.weight, self.bias, *given, self.eps, None)
            return ops.normalize_with(x, *given, self.weight, self.bias, eps=self.eps) if y is None else y
        if self.training and x.numel() == self.num_features and statistics.are_own(self.sync, self.process_group):
            raise ValueError(f"BatchNorm: x of shape {tuple(x.shape)} has one value a channel; training needs more")
        known = self.training and type(x) is Tensor and not self.sync and not torch.compiler.is_compiling()
        count = x.numel() // self.num_features if known else None
        moves = self.training and self.track_running_stats
        step = self._plain_step(x, count, self.unbiased) if moves and count is not None else None
        if step is not None:
            y = batch_norm_with_step(x, self.weight, self.bias, self.eps, step)
            self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
            return y
        y, moments = ops.batch_norm(
            x, self.weight, self.bias, eps=self.eps, sync=self.sync and self.training, group=self.process_group
        )
        if moves:
            self.follow(moments, self.unbiased, count)
        return y
