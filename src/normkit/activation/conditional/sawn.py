"""SAWN: gain and shift from a style that is warped along a flow."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.activation.conditional._map import FreeNorm, linear
from normkit.catalog import method


@method(
    "sawn",
    paper="Controllable Person Image Synthesis with Spatially-Adaptive Warped Normalization (Zhang et al., 2021), "
    "arXiv 2105.14739",
    shape="N C H W",
    over="H W",
    inputs={"style": "N 2C h w", "flow": "N 2 H W", "mask?": "N 1 H W"},
    example={"kernel_size": 3, "hidden_channels": 4},
    exempt={"batches": "the order of sums in torch's convolution follows batch and threads"},
)
class SAWN(FreeNorm):
    """Normalize each channel, then give every pixel a gain and a shift fetched from a style along a flow.

    For generators that put a person of one image into the pose of another. The style holds a shift map B and a gain map
    G. With n the parameter-free norm of x,

        y = n * (mask * warp(G) + (1 - mask) * x) + warp(B)

    warp(S) samples a block of k x k values of S around the place that the flow points to, bilinearly and with the
    border repeated. It averages the block, each value multiplied by an attention weight:

        warp(S) = (1 / k²) sum_ij p_ij S_ij,        p = softmax(logits(relu(hidden([block of x, block of S]))))

    Args:
        num_features: C.
        kernel_size: k.
        hidden_channels: channels between ``hidden``, a k x k convolution of the blocks, and ``logits``.
        norm: "instance", or "batch" with running averages.
        eps: added to the variance under the root.
        momentum: share of the new batch in the running averages; None weighs all batches alike.
        sync: join the batch's moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input x ``(N, C, H, W)``; style ``(N, 2C, h, w)``, B before G; flow ``(N, 2, H, W)`` in pixels of the style, columns
    before rows; mask ``(N, 1, H, W)``, floating point. Without a mask the gain is warp(G).

    Controllable Person Image Synthesis with Spatially-Adaptive Warped Normalization (Zhang et al., 2021), arXiv
    2105.14739.

    Differs from the authors' code in: k and the hidden width, fixed to 5 and 128 there, are arguments; half precision
    is worked out in float32 throughout, since x enters the convolution as it is. A batch with NaN enters the running
    averages, as in torch's BatchNorm.
    """

    def __init__(
        self,
        num_features: int,
        *,
        kernel_size: int = 5,
        hidden_channels: int = 128,
        norm: str = "instance",
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(num_features, norm=norm, eps=eps, momentum=momentum, sync=sync, process_group=process_group)
        self.kernel_size = check.size(self, "kernel_size", kernel_size)
        hidden_channels = check.size(self, "hidden_channels", hidden_channels)
        self.hidden = nn.Conv2d(2 * num_features, hidden_channels, kernel_size, stride=kernel_size)
        self.logits = nn.Linear(hidden_channels, kernel_size**2)

    def forward(self, x: Tensor, style: Tensor, flow: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalize ``x`` and modulate it with ``style``; with batch norm, training moves the running averages."""
        self._check(x, style, flow, mask)
        exact = statistics.accurate(x)
        own = _blocks(exact, torch.zeros_like(flow), self.kernel_size)
        sampled = _blocks(style.to(exact.dtype), flow, self.kernel_size)
        shift, gain = (self._warp(own, part) for part in sampled.chunk(2, dim=1))
        if mask is not None:
            mask = mask.to(exact.dtype)
            gain = mask * gain + (1 - mask) * exact
        return (self._normalize(x) * gain + shift).to(x.dtype)

    def _check(self, x: Tensor, style: Tensor, flow: Tensor, mask: Tensor | None) -> None:
        check.channels_first(self, x, self.num_features, 4, 4)
        batch, _, *size = x.shape
        check.values(self, "style", style, (batch, 2 * self.num_features, None, None), x)
        check.values(self, "flow", flow, (batch, 2, *size), x)
        if mask is not None:
            check.values(self, "mask", mask, (batch, 1, *size), x)

    def _warp(self, own: Tensor, sampled: Tensor) -> Tensor:
        """Average blocks (N, C, H, W, k, k), weighed by attention to the blocks of x."""
        blocks = torch.cat([own, sampled], dim=1).movedim(1, 3).flatten(3)
        h = torch.relu(linear(blocks, self.hidden.weight.flatten(1), self.hidden.bias))
        attention = linear(h, self.logits.weight, self.logits.bias).softmax(-1)
        return torch.einsum("nchwk,nhwk->nchw", sampled.flatten(4), attention) / self.kernel_size**2


def _blocks(source: Tensor, flow: Tensor, k: int) -> Tensor:
    """Sample k x k values of ``source`` (N, C, h, w) around each place that ``flow`` (N, 2, H, W) points to.

    Returns (N, C, H, W, k, k). All k² share the fractions of their place, so that (k + 1)² whole pixels are fetched and
    blended, first along rows, then along columns.
    """
    column, row = statistics.accurate(flow).unbind(1)
    rows, down = _pixels(row + torch.arange(row.shape[1], device=row.device).unsqueeze(-1), source.shape[2], k)
    columns, right = _pixels(column + torch.arange(row.shape[2], device=row.device), source.shape[3], k)
    at = rows.unsqueeze(-1) * source.shape[3] + columns.unsqueeze(-2)
    index = at.flatten(1).unsqueeze(1).expand(-1, source.shape[1], -1)
    pixels = source.flatten(2).gather(2, index).unflatten(2, at.shape[1:])
    pixels = torch.lerp(pixels[..., :-1, :], pixels[..., 1:, :], down[:, None, ..., None, None].to(source.dtype))
    return torch.lerp(pixels[..., :-1], pixels[..., 1:], right[:, None, ..., None, None].to(source.dtype))


def _pixels(place: Tensor, size: int, k: int) -> tuple[Tensor, Tensor]:
    """Return the k + 1 whole coordinates around each place, held inside [0, size), and the fraction between them."""
    first = place.floor()
    coordinates = first.long().unsqueeze(-1) + torch.arange(-(k // 2), k - k // 2 + 1, device=place.device)
    return coordinates.clamp(0, size - 1), place - first
