"""Per-channel and per-group statistics of ``(N, C, *space)``: batch, group, instance, response and evolved norms.

Every function takes per-channel parameters of shape (C,), any of which may be None, takes half precision in float32
and gives back the type and the memory format of ``x``. The formulas are the definition; a kernel computes the same
numbers faster.
"""

from __future__ import annotations

import torch
from torch import Tensor

from normkit.statistics import Moments, accurate, moments


def batch_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
    sync: bool = False,
    group=None,
) -> tuple[Tensor, Moments]:
    """Normalize each channel over samples and space; return the result and the moments it was done with.

    The moments, joined over the processes of ``group`` with ``sync``, carry no gradient: they are for running
    averages.

    >>> y, found = batch_norm(torch.tensor([[1.0], [3.0]]), eps=0.0)
    >>> y.flatten(), found.var
    (tensor([-1.,  1.]), tensor([1.]))
    """
    found = moments(x, [0, *_space(x)], sync=sync, group=group)
    return normalize_with(x, found.mean, found.var, weight, bias, eps=eps), Moments(*(f.detach() for f in found))


def normalize_with(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5
) -> Tensor:
    """Normalize with given moments, of shape (C,) or (N, C): y = weight (x - mean) / sqrt(var + eps) + bias."""
    y = (accurate(x) - _along(mean, x)) * _along((accurate(var) + eps).rsqrt(), x)
    return affine(y, weight, bias).to(x.dtype)


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5
) -> Tensor:
    """Normalize each run of C / ``num_groups`` neighbouring channels of each sample, over these channels and space."""
    mean, var = _group_moments(x, num_groups)
    return normalize_with(x, mean, var, weight, bias, eps=eps)


def instance_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5) -> Tensor:
    """Normalize each channel of each sample over space."""
    found = instance_moments(x)
    return normalize_with(x, found.mean, found.var, weight, bias, eps=eps)


def instance_moments(x: Tensor) -> Moments:
    """Mean and biased variance over space, of shape (N, C)."""
    return moments(x, _space(x))


def layer_norm2d(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-6) -> Tensor:
    """Normalize the vector of channels at each position."""
    found = moments(x, (1,))
    h = (accurate(x) - found.mean.unsqueeze(1)) * (found.var + eps).rsqrt().unsqueeze(1)
    return affine(h, weight, bias).to(x.dtype)


def global_response_norm(
    x: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-6, channels_last: bool = False
) -> Tensor:
    """Scale each channel by its share of the sample's response: y = weight x Q + bias + x.

    Q is the channel's L2 norm over space, divided by (the mean of these norms over the channels + ``eps``). The
    gradient of a norm of 0 is 0.
    """
    if channels_last:
        y = global_response_norm(x.movedim(-1, 1), weight, bias, eps=eps)
        return y.movedim(1, -1)
    exact = accurate(x)
    length = torch.linalg.vector_norm(exact.flatten(2) if x.dim() > 2 else exact.unsqueeze(-1), dim=-1)
    share = _along(length / (length.mean(1, keepdim=True) + eps), x)
    return (affine(exact * share, weight, bias) + exact).to(x.dtype)


def filter_response_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    tau: Tensor | None = None,
    *,
    eps: float | Tensor = 1e-6,
) -> Tensor:
    """Divide each channel of each sample by its root mean square over space; with ``tau``, max(y, tau) follows."""
    exact = accurate(x)
    y = affine(exact * (mean_over_space(exact.square()) + eps).rsqrt(), weight, bias)
    return threshold(y, tau).to(x.dtype)


def threshold(x: Tensor, tau: Tensor | None) -> Tensor:
    """max(x, tau), with a threshold per channel; a tie splits the gradient in halves."""
    return x if tau is None else torch.maximum(x, _along(tau.to(x.dtype), x))


def evonorm_s(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    slope: Tensor | None = None,
    *,
    eps: float = 1e-5,
    center: bool = True,
) -> Tensor:
    """Swish over the deviation of the group: y = weight x sigmoid(slope x) / s + bias.

    s² is the group's variance (its mean square without ``center``) plus ``eps``; a ``slope`` of None is 1. The groups
    are those of :func:`group_norm`; x itself is not centered.
    """
    exact = accurate(x)
    if center:
        spread = _group_moments(x, num_groups)[1]
    else:
        square = exact.unflatten(1, (num_groups, -1)).square()
        spread = _per_channel(square.mean(tuple(range(2, square.dim()))), x)
    gate = torch.sigmoid(exact if slope is None else exact * _along(slope, x))
    return affine(exact * gate * _along((spread + eps).rsqrt(), x), weight, bias).to(x.dtype)


def affine(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Multiply by ``weight`` and add ``bias``, per channel on axis 1."""
    if weight is not None:
        x = x * _along(weight, x)
    return x if bias is None else x + _along(bias, x)


def mean_over_space(x: Tensor) -> Tensor:
    """Mean over the axes after the channels, which are kept as 1; the tensor itself where there are none."""
    return x.mean(tuple(_space(x)), keepdim=True) if x.dim() > 2 else x


def _space(x: Tensor) -> range:
    return range(2, x.dim())


def _along(value: Tensor, x: Tensor) -> Tensor:
    """View numbers of shape (C,) or (N, C) so that they broadcast with ``x``."""
    return value.reshape(value.shape + (1,) * (x.dim() - 2))


def _group_moments(x: Tensor, num_groups: int) -> tuple[Tensor, Tensor]:
    grouped = x.unflatten(1, (num_groups, -1))
    found = moments(grouped, range(2, grouped.dim()))
    return _per_channel(found.mean, x), _per_channel(found.var, x)


def _per_channel(value: Tensor, x: Tensor) -> Tensor:
    """Repeat numbers per group, (N, G), to numbers per channel, (N, C)."""
    return value.unsqueeze(-1).expand(-1, -1, x.shape[1] // value.shape[1]).flatten(1)
