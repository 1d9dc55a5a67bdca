"""Rotary position embedding: features are turned in pairs, by an angle that grows with the position.

    (a, b) -> (a cos - b sin, b cos + a sin),        angle = position * base^(-2i / head_dim) for pair i

so that the product of a query and a key depends on how far apart they are. Which features make pair i is the one thing
that models differ in, and a checkpoint of one kind gives nonsense with the other:

    "halves"  features i and i + head_dim / 2      Llama, Qwen, Gemma and most models of Hugging Face
    "pairs"   features 2i and 2i + 1               RoFormer, GPT-J, Cohere, Meta's own Llama code

>>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
>>> rope(x)
tensor([[1.0000, 0.0000],
        [0.5403, 0.8415]])
"""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.statistics import accurate

__all__ = ["PAIRINGS", "Turns", "rope", "rotate", "turns"]

PAIRINGS = ("halves", "pairs")
Turns = tuple[Tensor, Tensor]


def turns(positions: Tensor, head_dim: int, base: float = 10000.0, dtype: torch.dtype = torch.float32) -> Turns:
    """Cosine and sine of the angles of each position, (..., T, head_dim / 2) each for positions (..., T)."""
    if head_dim % 2:
        raise ValueError(f"turns: head_dim must be even, since features turn in pairs, not {head_dim}")
    order = torch.arange(0, head_dim, 2, device=positions.device, dtype=dtype)
    angles = positions.to(dtype).unsqueeze(-1) * base ** (-order / head_dim)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, angles: Turns, pairing: str = "halves") -> Tensor:
    """Turn the features of x (..., T, head_dim) by :func:`turns`; half precision is rounded once, at the end."""
    check.choice("rotate", "pairing", pairing, PAIRINGS)
    wide = accurate(x)
    cos, sin = (angle.to(wide.dtype) for angle in angles)
    if pairing == "halves":
        a, b = wide.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)
    a, b = wide[..., ::2], wide[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2).to(x.dtype)


def rope(x: Tensor, base: float = 10000.0, pairing: str = "halves") -> Tensor:
    """Turn x (..., T, head_dim) by its positions 0 .. T - 1; float64 angles for float64 x, else float32 ones."""
    positions = torch.arange(x.shape[-2], device=x.device)
    return rotate(x, turns(positions, x.shape[-1], base, accurate(x.new_empty(0)).dtype), pairing)
