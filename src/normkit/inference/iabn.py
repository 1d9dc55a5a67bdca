"""IABN: a batch norm that leaves the batch's statistics where an instance is too unlike it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops import channel
from normkit.running import Running
from normkit.statistics import accurate, moments


@method(
    "iabn",
    paper="NOTE: Robust Continual Test-time Adaptation Against Temporal Correlation (Gong et al., 2022), arXiv "
    "2208.05117",
    shape="N C *",
    over="N *",
    replaces=("batchnorm",),
    aliases=("instance-aware-batchnorm",),
    exempt={"processes": "the moments of a stream at test time are one process's"},
)
class IABN(Running, Norm):
    """Normalize by the batch's moments, corrected for each instance that lies outside of what chance allows.

    In the place of a batch norm whose test samples come from elsewhere, or sorted by class.

    Let m_b, v_b be the moments of the batch (in evaluation the running ones), and m_i, v_i those of an instance over
    its L positions. All variances are unbiased. With S(a, t) = sign(a) max(|a| - t, 0),

        m = m_b + S(m_i - m_b, k sqrt((v_b + eps) / L))
        v = max(0, v_b + S(v_i - v_b, k (v_b + eps) sqrt(2 / (L - 1))))
        y = weight * (x - m) / sqrt(v + eps) + bias

    Args:
        num_features: C.
        k: how many standard errors an instance may be off.
        eps: added to the variances.
        momentum: share of the new batch in the running moments.
        skip: instances of so many positions or fewer are not corrected; a vector has one.

    State: ``weight``, ``bias``, ``running_mean``, ``running_var`` (C,).

    NOTE (Gong et al., 2022), arXiv 2208.05117. The paper has k = 4 and momentum 0.01, the authors' code 3 and 0.1.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_features: int, *, k: float = 3.0, eps: float = 1e-5, momentum: float = 0.1, skip: int = 1):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.k, self.eps = check.number(self, "k", k, 0.0), check.eps(self, eps)
        self.momentum = check.number(self, "momentum", momentum, 0.0, 1.0)
        self.skip = check.size(self, "skip", skip)
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.keep_moments(num_features, batches=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (N, C, ...); in training move the running moments."""
        check.channels_first(self, x, self.num_features)
        wide = accurate(x)
        mean, var = self._shared(wide)
        positions = math.prod(x.shape[2:])
        if positions <= self.skip:
            mean, var = channel.along(mean, wide), channel.along(var, wide)
        else:
            mean, var = self._correct(wide, mean, var, positions)
        return channel.affine((wide - mean) / (var + self.eps).sqrt(), self.weight, self.bias).to(x.dtype)

    def _shared(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The moments of the batch, or in evaluation the running ones."""
        if not self.training:
            return accurate(self.running_mean), accurate(self.running_var)
        batch = moments(x, [0, *range(2, x.dim())])
        self.follow(batch)
        return batch.mean, batch.unbiased()

    def _correct(self, x: Tensor, mean: Tensor, var: Tensor, positions: int) -> tuple[Tensor, Tensor]:
        own = moments(x, range(2, x.dim()))
        room = self.k * ((var + self.eps) / positions).sqrt()
        spread = self.k * (var + self.eps) * (var.new_full((), 2.0) / (positions - 1)).sqrt()
        mean = mean + _shrunk(own.mean - mean, room)
        var = (var + _shrunk(own.unbiased() - var, spread)).clamp(min=0)
        ones = (1,) * (x.dim() - 2)
        return mean.reshape(*mean.shape, *ones), var.reshape(*var.shape, *ones)


def _shrunk(far: Tensor, room: Tensor) -> Tensor:
    """What of a difference is beyond the room that it has."""
    return far.sign() * (far.abs() - room).clamp(min=0)
