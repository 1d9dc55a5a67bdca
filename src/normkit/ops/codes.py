"""A cache's chunks of tokens in two bits a number, and back: the kernel of `surgery.quantizing.caching`'s PyTorch."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from normkit.kernels import special
from normkit.ops import eager

__all__ = ["decoded", "encoded"]

WIDTH = 8  # numbers that share a code word
MOST_WIDTH = 4096  # features of a token


def encoded(x: Tensor, directions: Tensor, least: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor] | None:
    """Return of chunks (..., T, D) signs, code words, scale1, shift and scale2; None where the formula is to run.

    ``directions`` (256, 8) are the code words at length 1, ``least`` is the least square that a root is taken of.
    """
    x = x.detach()
    if eager.runs_formula("encoded", _against(x), x, directions):
        return None
    *lead, tokens, width = x.shape
    signs, words = (x.new_empty(*lead, tokens, width // WIDTH, dtype=torch.uint8) for _ in range(2))
    scale1, shift, scale2 = (x.new_empty(*lead, *last) for last in ((tokens, 1), (1, width), (tokens, 1)))
    plan, given = special.CODES.pack(tokens, width, least), eager.pack(x)
    special.require().encode(plan, prod(lead), given, eager.pack(directions), signs, words, scale1, shift, scale2)
    return signs, words, scale1, shift, scale2


def decoded(
    signs: Tensor, words: Tensor, table: Tensor, scale1: Tensor, shift: Tensor, scale2: Tensor
) -> Tensor | None:
    """Return chunks (..., T, D) again, in float32; None where the formula is to run."""
    *lead, tokens, _ = words.shape
    y = torch.empty(*lead, tokens, words.shape[-1] * WIDTH, dtype=torch.float32, device=words.device)
    if eager.runs_formula("decoded", _against(y), y, table, scale1, shift, scale2):
        return None
    arrays = [value.contiguous() for value in (signs, words, table, scale1.float(), shift.float(), scale2.float())]
    special.require().decode(special.CODES.pack(tokens, y.shape[-1], 0.0), prod(lead), *arrays, y)
    return y


def _against(x: Tensor) -> str | None:
    """What is against the kernel of codes, beside what is against all."""
    if torch.compiler.is_compiling():
        return None
    if eager.on_gpu(x):
        return "there is no kernel of codes on GPUs"
    if x.dtype is not torch.float32 or x.dim() < 2 or x.shape[-1] > MOST_WIDTH:
        return f"the kernel of codes takes float32 and tokens of up to {MOST_WIDTH} features"
    return special.absent()
