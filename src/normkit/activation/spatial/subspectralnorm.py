"""Sub-spectral normalization."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.activation.spatial._batch import BatchMoments
from normkit.catalog import method


@method(
    "subspectralnorm",
    paper="SubSpectral Normalization for Neural Audio Data Processing (Chang et al., 2021), arXiv 2103.13620",
    shape="N C F T",
    over="N F/bands T",
    replaces=("batchnorm", "instancenorm"),
    invariant=("shift", "scale"),
)
class SubSpectralNorm(BatchMoments):
    """Normalize each band of frequencies of each channel by moments of its own.

    For networks on spectrograms, whose frequencies are not alike as an image's rows are. The F frequencies are cut
    into G = ``num_groups`` bands of neighbours; per channel and band, over samples, the band's frequencies and time
    (without the samples for ``norm="instance"``),

        y = weight * (x - mean) / sqrt(var + eps) + bias

    with the biased variance, and the running moments in evaluation of ``norm="batch"``. Entry c * G + g of all that is
    kept per channel and band belongs to band g of channel c.

    Args:
        num_features: C, the number of channels.
        num_groups: G, a divisor of F.
        affine: "sub" for a gain and shift per channel and band, "all" per channel, "none" for none.
        norm: "batch" or "instance".
        dim: axis of the frequencies, 2 or 3 (or -1).
        eps: added to the variance under the root.
        momentum: share of the NEW batch in the running moments; None averages all batches alike.
        sync: join the batch's moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C, F, T)``, or ``(N, C, T, F)`` with dim=3.

    SubSpectral Normalization for Neural Audio Data Processing (Chang et al., 2021), arXiv 2103.13620.

    A batch with NaN or infinity enters the running averages, as in torch's BatchNorm.
    """

    def __init__(
        self,
        num_features: int,
        *,
        num_groups: int = 16,
        affine: str = "sub",
        norm: str = "batch",
        dim: int = 2,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.num_groups = check.size(self, "num_groups", num_groups)
        self.affine = check.choice(self, "affine", affine, ("sub", "all", "none"))
        self.norm = check.choice(self, "norm", norm, ("batch", "instance"))
        self.dim = check.choice(self, "dim", dim, (2, 3, -1)) % 4
        self.eps = check.eps(self, eps)
        width = {"sub": num_features * num_groups, "all": num_features}.get(affine)
        self.weight = None if width is None else nn.Parameter(torch.ones(width))
        self.bias = None if width is None else nn.Parameter(torch.zeros(width))
        self._keep_batch_moments(num_features * num_groups, momentum, sync, process_group, track=norm == "batch")

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``; in training with batch moments move the running ones."""
        check.channels_first(self, x, self.num_features, 4, 4)
        check.divides(self, "num_groups", self.num_groups, f"x.shape[{self.dim}]", x.shape[self.dim])
        bands = statistics.accurate(x).unflatten(self.dim, (self.num_groups, -1))
        mean, var = self._band_moments(bands)
        scale = (var + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self._per_band(self.weight)
        y = (bands - self._along(mean)) * self._along(scale)
        if self.bias is not None:
            y = y + self._along(self._per_band(self.bias))
        return y.flatten(self.dim, self.dim + 1).to(x.dtype)

    def _per_band(self, parameter: Tensor) -> Tensor:
        """Repeat a number per channel for each of its bands."""
        return parameter if self.affine == "sub" else parameter[:, None].expand(-1, self.num_groups).flatten()

    def _band_moments(self, bands: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of shape (C * G,), or (N, C * G) per sample."""
        inner = (3, 4) if self.dim == 2 else (2, 4)
        if self.norm == "batch":
            return self._moments(bands, (0, *inner))
        moments = statistics.moments(bands, inner)
        return moments.mean.flatten(1), moments.var.flatten(1)

    def _along(self, value: Tensor) -> Tensor:
        """View numbers per channel and band so that they broadcast with the bands."""
        value = value.unflatten(-1, (self.num_features, self.num_groups))
        return value[..., None, None] if self.dim == 2 else value[..., None, :, None]
