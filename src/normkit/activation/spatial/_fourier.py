"""Amplitude and phase of images, with the thresholds of the code for "Decompose, Adjust, Compose"."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import ops
from normkit.activation._layout import in_layout_of

FLOOR = 1e-5  # fixed in the authors' code


def spectrum(x: Tensor) -> Tensor:
    """Half of the two-dimensional Fourier transform of ``x`` (N, C, H, W), unnormalized: (N, C, H, W // 2 + 1)."""
    if x.shape[0] == 0:  # MKL refuses to transform nothing
        half = x[..., : x.shape[-1] // 2 + 1]
        return torch.complex(half, half)
    return torch.fft.rfft2(x)


def phase(z: Tensor) -> Tensor:
    """Unit complex numbers with the phase of ``z``; a real part under the floor counts as +1e-5."""
    real = _lift(z.real)
    length = (real.square() + z.imag.square()).sqrt()
    return torch.complex(real / length, z.imag / length)


def amplitude(z: Tensor) -> Tensor:
    """Absolute values of ``z``; the floor lies under the power, so none is below sqrt(1e-5)."""
    return _lift(z.real.square() + z.imag.square()).sqrt()


def compose(phase: Tensor, amplitude: Tensor, weight: Tensor | None, bias: Tensor | None, like: Tensor) -> Tensor:
    """Transform ``amplitude * phase`` back, then scale and shift per channel, in the layout and type of ``like``."""
    y = _image(torch.complex(amplitude * phase.real, amplitude * phase.imag), like.shape)
    return ops.affine(in_layout_of(like, y), weight, bias).to(like.dtype)


def _image(z: Tensor, shape: torch.Size) -> Tensor:
    """The real image of that shape whose half spectrum is ``z``."""
    if shape[0] == 0:
        return z.real[..., :1].expand(shape)
    return torch.fft.irfft2(z, s=shape[-2:])


def _lift(value: Tensor) -> Tensor:
    """Replace all that is nearer to 0 than the floor by the floor, a constant: no gradient passes there."""
    return torch.where(value.abs() < FLOOR, FLOOR, value)
