"""What the norms share that remove the correlations of channels, group by group."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, statistics
from normkit.activation.batch._channelwise import Channelwise, along
from normkit.activation.spatial._layout import in_layout_of


class Whitening(Channelwise):
    """Center the channels and multiply each group of them by a matrix made from its covariance.

    In evaluation with the running mean (C,) and the running matrices (groups, C / groups, C / groups), which are kept
    under the name ``matrix``.
    """

    running_mean: Tensor
    matrix: str

    def __init__(
        self,
        num_features: int,
        num_groups: int,
        eps: float,
        momentum: float,
        affine: bool,
        sync: bool,
        process_group,
    ):
        super().__init__(num_features, eps, momentum, affine, sync, process_group)
        self.num_groups = check.size(self, "num_groups", num_groups)
        check.divides(self, "num_groups", num_groups, "num_features", num_features)
        width = num_features // num_groups
        self.keep(running_mean=torch.zeros(num_features))
        self.register_buffer(self.matrix, torch.eye(width).repeat(num_groups, 1, 1))

    def _inverse_root(self, covariance: Tensor) -> Tensor:
        """The matrix of each group (groups, width, width)."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Whiten ``x``; in training move the running mean and matrix."""
        check.channels_first(self, x, self.num_features)
        exact = statistics.accurate(x)
        if self.training:
            self._require_spread(x)
            mean, count = self._mean_and_count(x)
            centered = exact - along(mean, x)
            with statistics.full_precision(x):
                matrix = self._inverse_root(self._covariance(centered, count))
            self.move(count, **{"running_mean": mean, self.matrix: matrix})
        else:
            running = self.running_mean, getattr(self, self.matrix)
            mean, matrix = (statistics.accurate(t).to(exact.dtype) for t in running)
            centered = exact - along(mean, x)
        return self._mix(matrix, centered, x)

    def _covariance(self, centered: Tensor, count: Tensor) -> Tensor:
        """Covariance of each group's channels, divided by the number of values, with eps on its diagonal."""
        values = self._grouped(centered)
        product = values @ values.mT
        if self.sync:
            product = statistics.sum_over_processes(product, self.process_group)
        width = product.shape[-1]
        eye = torch.eye(width, dtype=product.dtype, device=product.device)
        return product / count.clamp(min=1) + self.eps * eye

    def _grouped(self, x: Tensor) -> Tensor:
        """View (N, C, *space) as (groups, width, values)."""
        return x.movedim(1, 0).unflatten(0, (self.num_groups, -1)).flatten(2)

    def _mix(self, matrix: Tensor, centered: Tensor, x: Tensor) -> Tensor:
        with statistics.full_precision(x):
            y = matrix @ self._grouped(centered)
        y = y.flatten(0, 1).reshape(x.shape[1], x.shape[0], *x.shape[2:]).movedim(0, 1)
        if self.weight is not None and self.bias is not None:
            y = y * along(self.weight, y) + along(self.bias, y)
        return in_layout_of(x, y.to(x.dtype))
