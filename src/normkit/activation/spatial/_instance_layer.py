"""A mix of instance and layer normalization, with the variances unbiased as in U-GAT-IT."""

from __future__ import annotations

from torch import Tensor

from normkit import ops
from normkit.statistics import accurate, moments


def instance_layer_norm(x: Tensor, rho: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """Normalize (N, C, *space) over space and over channels and space, mix them by ``rho``, scale and shift.

    ``rho``, ``weight`` and ``bias`` have shape (C,) or (N, C). The mix is one affine per sample and channel of the
    values less their mean over space, which loses no digits to a large offset.
    """
    exact = accurate(x)
    instance = ops.instance_moments(exact)
    layer = moments(exact, range(1, x.dim()))
    share = (1 - rho) * (layer.unbiased() + eps).rsqrt().unsqueeze(-1)
    gain = rho * (instance.unbiased() + eps).rsqrt() + share
    shift = (instance.mean - layer.mean.unsqueeze(-1)) * share
    centered = exact - instance.mean.reshape(instance.mean.shape + (1,) * (x.dim() - 2))
    return ops.affine(centered, weight * gain, weight * shift + bias).to(x.dtype)
