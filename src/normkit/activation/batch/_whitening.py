"""What the norms share that remove the correlations of channels, group by group."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check, statistics
from normkit.activation._layout import in_layout_of
from normkit.activation.batch._channelwise import Channelwise, over
from normkit.ops.channel import along


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
            with statistics.full_precision(x):
                mean, product, count = self._products(exact)
                matrix = self._inverse_root(self._covariance(product, count))
            centered = exact - along(mean, x)
            self.move(count, **{"running_mean": mean, self.matrix: matrix})
        else:
            running = self.running_mean, getattr(self, self.matrix)
            mean, matrix = (statistics.accurate(t).to(exact.dtype) for t in running)
            centered = exact - along(mean, x)
        return self._mix(matrix, centered, x)

    def _products(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Means, products of each group's centered channels (groups, width, width), and the number of values."""
        mean, count = statistics.mean_and_count(x, over(x))
        centered = self._grouped(x - along(mean, x))
        product = centered @ centered.mT
        if self._alone():
            return mean, product, count
        return statistics.join_products(mean, centered, product, count, self.process_group)

    def _covariance(self, product: Tensor, count: Tensor) -> Tensor:
        """Products divided by the number of values, with eps on the diagonal."""
        eye = torch.eye(product.shape[-1], dtype=product.dtype, device=product.device)
        return product / count.clamp(min=1) + self.eps * eye

    def _grouped(self, x: Tensor) -> Tensor:
        """View (N, C, *space) as (groups, width, values)."""
        return x.movedim(1, 0).unflatten(0, (self.num_groups, -1)).flatten(2)

    def _mix(self, matrix: Tensor, centered: Tensor, x: Tensor) -> Tensor:
        with statistics.full_precision(x):
            y = matrix @ self._grouped(centered)
        y = y.flatten(0, 1).reshape(x.shape[1], x.shape[0], *x.shape[2:]).movedim(0, 1)
        y = y if self.weight is None else y * along(self.weight, y)
        y = y if self.bias is None else y + along(self.bias, y)
        return in_layout_of(x, y.to(x.dtype))
