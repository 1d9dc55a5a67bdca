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
from normkit.ops import eager
from normkit.statistics import accurate

__all__ = ["PAIRINGS", "Turns", "rope", "rotate", "rotate_formula", "turns"]

PAIRINGS = ("halves", "pairs")
Turns = tuple[Tensor, Tensor]


def turns(positions: Tensor, head_dim: int, base: float = 10000.0, dtype: torch.dtype = torch.float32) -> Turns:
    """Cosine and sine of the angles of each position, (..., T, head_dim / 2) each for positions (..., T)."""
    if head_dim % 2:
        raise ValueError(f"turns: head_dim must be even, since features turn in pairs, not {head_dim}")
    order = torch.arange(0, head_dim, 2, device=positions.device, dtype=dtype)
    angles = positions.to(dtype).unsqueeze(-1) * (1.0 / base ** (order / head_dim))  # the bits of transformers
    return angles.cos(), angles.sin()


def rotate(x: Tensor, angles: Turns, pairing: str = "halves") -> Tensor:
    """Turn the features of x (..., T, head_dim) by :func:`turns`; half precision is rounded once, at the end."""
    check.choice("rotate", "pairing", pairing, PAIRINGS)
    wide = accurate(x)
    cos, sin = (angle.to(wide.dtype) for angle in angles)
    shared = cos.shape == sin.shape == (*x.shape[-2:-1], x.shape[-1] // 2)
    if shared and not eager.needs_grad(cos, sin) and eager.refusal(wide, cos, sin) is None:
        return _Rotate.apply(wide, cos, sin, pairing).to(x.dtype)
    return rotate_formula(wide, cos, sin, pairing).to(x.dtype)


def rotate_formula(x: Tensor, cos: Tensor, sin: Tensor, pairing: str) -> Tensor:
    """The definition, all in one type."""
    a, b = _pairs(x, pairing)
    turned = a * cos - b * sin, b * cos + a * sin
    return torch.cat(turned, -1) if pairing == "halves" else torch.stack(turned, -1).flatten(-2)


def _pairs(x: Tensor, pairing: str) -> tuple[Tensor, Tensor]:
    """The first and the second features of all pairs."""
    if pairing == "halves":
        first, second = x.chunk(2, -1)
        return first, second
    return x[..., ::2], x[..., 1::2]


class _Rotate(torch.autograd.Function):
    """The formula written into one new tensor, which saves the temporaries; the derivative turns back."""

    @staticmethod
    def forward(ctx, x, cos, sin, pairing):
        ctx.save_for_backward(cos, sin)
        ctx.pairing = pairing
        y = torch.empty_like(x)
        (a, b), (c, d) = _pairs(x, pairing), _pairs(y, pairing)
        torch.mul(a, cos, out=c).addcmul_(b, sin, value=-1)
        torch.mul(b, cos, out=d).addcmul_(a, sin)
        return y

    @staticmethod
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        return rotate(grad, (cos, -sin), ctx.pairing), None, None, None


def rope(x: Tensor, base: float = 10000.0, pairing: str = "halves") -> Tensor:
    """Turn x (..., T, head_dim) by its positions 0 .. T - 1; float64 angles for float64 x, else float32 ones."""
    positions = torch.arange(x.shape[-2], device=x.device)
    return rotate(x, turns(positions, x.shape[-1], base, accurate(x.new_empty(0)).dtype), pairing)
