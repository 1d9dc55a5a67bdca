"""The uniform grid of layer-wise calibration: a range and a zero point, both real and both learned."""

from __future__ import annotations

import torch
from torch import Tensor

PAPER = (
    "Improving Post Training Neural Quantization: Layer-wise Calibration and Integer Programming (Hubara et al., 2021)"
)
PAPER += ", arXiv 2006.10518"
LEAST, MOST = 1e-6, 1e5  # of a range


def bounds(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return range and zero point of values between ``low`` and ``high``, with 0 in the range."""
    low, high = low.clamp(max=0), high.clamp(min=0)
    span = high - low
    return torch.where(span == 0, 1.0, span), low


def rounded(x: Tensor) -> Tensor:
    """Round half to even, with the gradient of the identity."""
    return x + (x.round() - x).detach()


def clipped(x: Tensor, low: float, high: float) -> Tensor:
    """Clamp, with a gradient of 1 at the ends too, where rounded values often lie; torch's is 0 there from 2.14 on."""
    return torch.where((x >= low) & (x <= high), x, x.detach().clamp(low, high))


def quantize(x: Tensor, span: Tensor, zero_point: Tensor, bits: int) -> Tensor:
    """Return ``x`` on a grid of 2^bits points; everything but the rounding is differentiated."""
    most = 2**bits - 1
    scale = span.clamp(LEAST, MOST) / most
    start = -clipped(rounded(-zero_point / scale), 0, most) * scale
    return rounded(clipped((x - start) / scale, 0, most)) * scale + start
