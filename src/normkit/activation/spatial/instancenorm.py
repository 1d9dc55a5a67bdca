"""Instance normalization."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.catalog import method
from normkit.norm import Norm
from normkit.running import Running, track


@method(
    "instancenorm",
    paper="Instance Normalization: The Missing Ingredient for Fast Stylization (Ulyanov et al., 2016), arXiv "
    "1607.08022",
    evidence="library",
    shape="N C +",
    over="*",
    replaces=("batchnorm", "groupnorm"),
    aliases={"in": {}, "InstanceNorm1d": {"space": 1}, "InstanceNorm2d": {"space": 2}, "InstanceNorm3d": {"space": 3}},
    called={"torch.nn.InstanceNorm2d": "num_features eps momentum affine track_running_stats device dtype"},
    dialects={"space": (None, 1, 2, 3)},
    invariant=("shift", "scale"),
    peer=lambda features: nn.InstanceNorm2d(features),
)
class InstanceNorm(Running, Norm):
    """Center each channel of each sample on its mean and divide it by its standard deviation.

    For stylization and generation, where an image's contrast shall not matter. For recognition contrast may matter:
    ``ibn`` takes it from half of the channels, ``batch-instance-norm`` from as many as it learns to.

    With mean and biased variance over space, per sample and channel,

        y = weight * (x - mean) / sqrt(var + eps) + bias

    With ``track_running_stats`` training averages the samples' means and unbiased variances into running ones, which
    evaluation then uses for every sample; otherwise evaluation equals training.

    Args:
        num_features: C, the number of channels.
        eps: added to the variance under the root.
        momentum: share of the NEW batch in the running moments; None leaves them where they are, as torch does.
        affine: learn ``weight`` and ``bias``.
        bias: learn ``bias``; without effect when ``affine`` is off.
        track_running_stats: keep running moments for evaluation.
        space: number of axes of space, where an input of any other rank is an error, as in torch's InstanceNorm2d.
        sync: average the tracked moments over the processes of ``process_group``; the output needs no other process.
        process_group: the processes to join, default all.

    Input ``(N, C, *space)`` with at least one axis of space. In training a channel needs more than one position. One
    sample may come alone, as ``(C, *space)``: its rank shows it where ``space`` is given, else by C being first and not
    second.

    Instance Normalization: The Missing Ingredient for Fast Stylization (Ulyanov et al., 2016), arXiv 1607.08022.

    The state dictionary is that of torch.nn.InstanceNorm2d, where ``num_batches_tracked`` stays 0 too. A batch with
    NaN or infinity enters the running averages, as in torch's.
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    momentum: float | None

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        bias: bool = True,
        track_running_stats: bool = False,
        space: int | None = None,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.momentum = None if momentum is None else check.number(self, "momentum", momentum, 0, 1)
        self.space = None if space is None else check.size(self, "space", space)
        self.affine, self.track_running_stats = bool(affine), bool(track_running_stats)
        self.sync, self.process_group = sync, process_group
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine and bias else None
        self.keep_moments(num_features, track_running_stats)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running moments, if there are any."""
        if self._alone(x):
            return self.forward(x.unsqueeze(0)).squeeze(0)
        check.channels_first(self, x, self.num_features, *(3, None) if self.space is None else [self.space + 2] * 2)
        mean, var = self.running_mean, self.running_var
        if mean is not None and var is not None and self.track_running_stats and not self.training:
            return ops.normalize_with(x, mean, var, self.weight, self.bias, eps=self.eps)
        if self.training and x.shape[2:].numel() == 1:
            raise ValueError(f"InstanceNorm: x of shape {tuple(x.shape)} has one position; training needs more")
        if mean is not None and var is not None:
            self._average(mean, var, ops.instance_moments(x.detach()))
        return ops.instance_norm(x, self.weight, self.bias, eps=self.eps)

    def _alone(self, x: Tensor) -> bool:
        """Whether x is one sample without an axis for it."""
        check.floating(self, x)
        if self.space is not None:
            return x.dim() == self.space + 1 and x.shape[0] == self.num_features
        return x.dim() > 1 and (x.dim() == 2 or x.shape[1] != self.num_features) and x.shape[0] == self.num_features

    def _average(self, mean: Tensor, var: Tensor, moments: statistics.Moments) -> None:
        if not len(moments.mean) and statistics.are_own(self.sync, self.process_group):
            return
        joined = {"group": self.process_group, "sync": self.sync}
        rate = self.momentum or 0.0
        track(mean, statistics.mean_over(moments.mean, (0,), **joined), rate)
        track(var, statistics.mean_over(moments.unbiased(), (0,), **joined), rate)
