"""DELTA's test-time batch renormalization: a running mean and deviation by value, the batch's by gradient."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.ops import channel
from normkit.running import Running, moving, once, snapshot, track
from normkit.statistics import accurate, moments


@method(
    "delta-tbr",
    paper="DELTA: Degradation-Free Fully Test-Time Adaptation (Zhao et al., 2023), arXiv 2301.13018",
    shape="N C *",
    over="N *",
    exempt={
        "processes": "test-time adaptation runs in one process",
        "vmap": "the statistics of one batch would move in each",
        "threads": "every call moves the running values",
        "rest": "it is for test time: the running values move in evaluation as in training",
    },
)
class DeltaTBR(Method, Running):
    """Normalize by the stream's running mean and deviation, and let gradients flow as through the batch's own.

    In the place of batch norms while a model is adapted on a stream; nothing of the source's statistics is used. With
    m the batch's mean, s = sqrt(biased variance + eps), and r, d constants,

        r = s / running_std,   d = (m - running_mean) / running_std
        y = weight * ((x - m) / s * r + d) + bias

    Then each running value is ``prior`` of itself and (1 - prior) of the batch's. The first batch gives them.

    Args:
        num_features: C.
        prior: the share of the old running values.
        eps: added to the variance.

    It acts the same in training and in evaluation. State: ``weight``, ``bias``, ``running_mean``, ``running_std``
    (C,), ``num_batches_tracked``; running values that are loaded without it go on.

    DELTA (Zhao et al., 2023), arXiv 2301.13018. ``test-batch-renorm`` is CEMA's form of it.

    Differs from the authors' code in: it takes any number of axes of space, and vectors.
    """

    running_mean: Tensor
    running_std: Tensor
    num_batches_tracked: Tensor

    def __init__(self, num_features: int, *, prior: float = 0.95, eps: float = 1e-5):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.prior, self.eps = check.number(self, "prior", prior, 0.0, 1.0), check.eps(self, eps)
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.keep(batches=True, running_mean=torch.zeros(num_features), running_std=torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (N, C, ...), and move the running values."""
        check.channels_first(self, x, self.num_features)
        if x.shape == (1, self.num_features):
            raise ValueError(f"DeltaTBR: x of shape {tuple(x.shape)} has no more than 1 value per channel")
        with once(self, x):
            h = self._renormalize(accurate(x))
        return channel.affine(h, self.weight, self.bias).to(x.dtype)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        std = state_dict.get(f"{prefix}running_std")
        if isinstance(std, Tensor):  # the authors' layer, whose statistics these may be, counts no batches
            state_dict.setdefault(f"{prefix}num_batches_tracked", std.new_ones((), dtype=torch.long))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _renormalize(self, x: Tensor) -> Tensor:
        batch = moments(x, [0, *range(2, x.dim())])
        mean, std = batch.mean, (batch.var + self.eps).sqrt()
        fresh = (self.num_batches_tracked == 0) & (batch.count > 0)
        old_mean = torch.where(fresh, mean.detach(), snapshot(self.running_mean).to(x.dtype))
        old_std = torch.where(fresh, std.detach(), snapshot(self.running_std).to(x.dtype))
        r, d = std.detach() / old_std, (mean.detach() - old_mean) / old_std
        self._move(batch.count > 0, fresh, running_mean=mean, running_std=std)
        return (x - channel.along(mean, x)) * channel.along(r / std, x) + channel.along(d, x)

    def _move(self, moves: Tensor, fresh: Tensor, **values: Tensor) -> None:
        for name, value in values.items():
            track(getattr(self, name), value, torch.where(fresh, 1.0, (1 - self.prior) * moves.to(value.dtype)))
        with moving():
            self.num_batches_tracked.add_(moves.to(self.num_batches_tracked.dtype))
