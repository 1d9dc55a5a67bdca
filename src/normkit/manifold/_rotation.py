"""Rotations of space as vectors (axis times angle) and as quaternions, smooth at an angle of zero."""

from __future__ import annotations

import torch
from torch import Tensor

SMALL = 1e-4  # angles below are told by their series


def quaternion(vector: Tensor) -> Tensor:
    """Return quaternions (..., 4), the real part first, of rotation vectors (..., 3)."""
    square = vector.square().sum(-1, keepdim=True)
    small = square < SMALL**2
    angle = torch.where(small, 1, square).sqrt()
    share = torch.where(small, 0.5 - square / 48, (angle / 2).sin() / angle)
    real = torch.where(small, 1 - square / 8, (angle / 2).cos())
    return torch.cat([real, share * vector], -1)


def times(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of quaternions: first the right rotation, then the left."""
    a, u = left[..., :1], left[..., 1:]
    b, v = right[..., :1], right[..., 1:]
    real = a * b - (u * v).sum(-1, keepdim=True)
    return torch.cat([real, a * v + b * u + torch.linalg.cross(u, v)], -1)


def vector(quaternion: Tensor) -> Tensor:
    """Return the rotation vectors, of angles in [0, pi]."""
    quaternion = torch.where(quaternion[..., :1] < 0, -quaternion, quaternion)
    real, rest = quaternion[..., :1], quaternion[..., 1:]
    square = rest.square().sum(-1, keepdim=True)
    small = square < SMALL**2
    sine = torch.where(small, 1, square).sqrt()
    share = torch.where(small, 2 / real.clamp(min=0.5) * (1 - square / (3 * real.square().clamp(min=0.25))), 0)
    return torch.where(small, share, 2 * torch.atan2(sine, real) / sine) * rest
