"""REPAIR: the statistics of a merged network, set to those of the networks that it was merged from."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.catalog import method
from normkit.norm import Norm
from normkit.running import Running


@method(
    "repair",
    paper="Rethinking Model Re-Basin and Linear Mode Connectivity (Qu, Horvath, 2024), arXiv 2402.05966",
    shape="N C *",
    over="N *",
)
class Repair(Running, Norm):
    """Give each channel a goal mean and a goal standard deviation, from the mean and variance of all batches seen.

    For networks merged by averaging weights, whose activations have collapsed: put after a convolution or linear, shown
    the training data once, and folded away; ``normkit.surgery.statistics.repair`` does all of it. Per channel, over
    batch and space,

        repair      y = weight * (x - mean) / sqrt(var + eps) + bias
        rescale     y = weight * x / sqrt(var + eps)
        reshift     y = x - mean + bias

    Training normalizes with the batch's statistics and averages them, all batches alike; evaluation uses these
    averages. The variance is about the mean in each case. ``repair`` normalizes with the biased and averages the
    unbiased one, ``rescale`` does both with the unbiased.

    Args:
        num_features: C, the number of channels.
        variant: ``"repair"``, ``"rescale"`` or ``"reshift"``. What a variant does not use stays in the state.
        eps: added to the variance under the root.
        sync: join the statistics over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C)`` or ``(N, C, *space)``. In training a channel needs more than one value.

    Rethinking Model Re-Basin and Linear Mode Connectivity (Qu, Horvath, 2024), arXiv 2402.05966, after REPAIR:
    REnormalizing Permuted Activations for Interpolation Repair (Jordan et al., 2022), arXiv 2211.08403.

    A batch with NaN or infinity enters the running averages, as in torch's BatchNorm; an empty one does not.
    """

    running_mean: Tensor | None
    running_var: Tensor | None

    def __init__(
        self, num_features: int, *, variant: str = "repair", eps: float = 1e-5, sync: bool = False, process_group=None
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.variant = check.choice(self, "variant", variant, ("repair", "rescale", "reshift"))
        self.eps = check.eps(self, eps)
        self.momentum = None
        self.sync, self.process_group = sync, process_group
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.keep_moments(num_features, True)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training move the running averages."""
        check.channels_first(self, x, self.num_features)
        if not self.training and self.running_mean is not None and self.running_var is not None:
            return self._apply_moments(x, self.running_mean, self.running_var)
        if x.numel() == self.num_features and statistics.are_own(self.sync, self.process_group):
            raise ValueError(f"Repair: x of shape {tuple(x.shape)} has one value a channel; training needs more")
        moments = statistics.moments(x, [0, *range(2, x.dim())], sync=self.sync, group=self.process_group)
        self.follow(statistics.Moments(*(value.detach() for value in moments)))
        return self._apply_moments(x, moments.mean, moments.unbiased() if self.variant == "rescale" else moments.var)

    def _apply_moments(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        if self.variant == "repair":
            return ops.normalize_with(x, mean, var, self.weight, self.bias, eps=self.eps)
        if self.variant == "rescale":
            return ops.normalize_with(x, torch.zeros_like(mean), var, self.weight, eps=self.eps)
        exact = statistics.accurate(x)
        return ops.affine(exact, bias=self.bias - statistics.accurate(mean)).to(x.dtype)
