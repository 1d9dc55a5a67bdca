"""sRGB to Lab and back, scaled to 0 .. 255 as image libraries store it, on the axis before the pixels."""

from __future__ import annotations

import torch
from torch import Tensor

TO_XYZ = ((0.412453, 0.357580, 0.180423), (0.212671, 0.715160, 0.072169), (0.019334, 0.119193, 0.950227))
WHITE = (0.95047, 1.0, 1.08883)
TO_LAB = ((0.0, 116.0, 0.0), (500.0, -500.0, 0.0), (0.0, 200.0, -200.0))
SCALE, SHIFT = (2.55, 1.0, 1.0), (-16.0 * 2.55, 128.0, 128.0)


def lab_of(rgb: Tensor) -> Tensor:
    """Turn RGB (..., 3, P) of 0 .. 255 into L * 2.55, a + 128, b + 128."""
    v = rgb / 255
    linear = torch.where(v > 0.04045, ((v.clamp(min=0.04045) + 0.055) / 1.055) ** 2.4, v / 12.92)
    xyz = _matrix(TO_XYZ, rgb) @ linear / _column(WHITE, rgb)
    f = torch.where(xyz > 0.008856, xyz.clamp(min=0.008856) ** (1 / 3), 7.787 * xyz + 16 / 116)
    return _matrix(TO_LAB, rgb) @ f * _column(SCALE, rgb) + _column(SHIFT, rgb)


def rgb_of(lab: Tensor) -> Tensor:
    """Invert :func:`lab_of`; colours that a screen cannot show are clipped to 0 .. 255."""
    f = _inverse(TO_LAB, lab) @ ((lab - _column(SHIFT, lab)) / _column(SCALE, lab))
    knee = 0.008856 ** (1 / 3)
    xyz = torch.where(f > knee, f**3, (f - 16 / 116) / 7.787) * _column(WHITE, lab)
    linear = _inverse(TO_XYZ, lab) @ xyz
    knee = 0.04045 / 12.92
    v = torch.where(linear > knee, 1.055 * linear.clamp(min=knee) ** (1 / 2.4) - 0.055, 12.92 * linear)
    return (v * 255).clamp(0, 255)


def _matrix(rows: tuple, like: Tensor) -> Tensor:
    return torch.tensor(rows, dtype=like.dtype, device=like.device)


def _inverse(rows: tuple, like: Tensor) -> Tensor:
    return torch.linalg.inv(torch.tensor(rows, dtype=torch.float64, device=like.device)).to(like.dtype)


def _column(values: tuple, like: Tensor) -> Tensor:
    return _matrix(values, like).unsqueeze(-1)
