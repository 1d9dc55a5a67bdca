"""A small language model, trained on the spot on CPython's documentation: for tests, examples and benchmarks.

Nothing is downloaded, and the same seed gives the same model.
"""

from __future__ import annotations

import copy
import functools
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit.lab.plan.data import text_of
from normkit.transformer import Decoder

VOCAB = 128  # of bytes; what is not ASCII counts as the last
CHARACTERS = 400_000  # of the text; its last tenth is held out


class Tiny(NamedTuple):
    """A trained decoder, batches of tokens (B, T) like those that it was trained on, and batches that were held out."""

    model: Decoder
    given: list[Tensor]
    held: list[Tensor]


def language_model(
    seed: int = 0,
    *,
    steps: int = 250,
    dim: int = 64,
    depth: int = 3,
    heads: int = 4,
    length: int = 64,
    tied: bool = True,
    lr: float = 3e-3,
) -> Tiny:
    """Return a decoder of bytes, trained within a minute, with 32 batches of 16 pieces of text, and 16 of 32 held out.

    It is trained once in a process, and every caller has a copy.

    >>> tiny = language_model(steps=2, dim=8, depth=1, heads=1, length=16)
    >>> tiny.given[0].shape, tiny.held[0].shape
    (torch.Size([16, 16]), torch.Size([32, 16]))
    """
    tiny = _train(seed, steps, dim, depth, heads, length, tied, lr)
    return tiny._replace(model=copy.deepcopy(tiny.model))


@functools.cache
def _train(seed: int, steps: int, dim: int, depth: int, heads: int, length: int, tied: bool, lr: float) -> Tiny:
    text = _tokens()
    cut, chance = len(text) * 9 // 10, torch.Generator().manual_seed(seed)

    def batches(count: int, size: int, low: int, high: int) -> list[Tensor]:
        starts = torch.stack([torch.randint(low, high - length, (size,), generator=chance) for _ in range(count)])
        return list(text[starts.unsqueeze(2) + torch.arange(length)])

    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        model = Decoder(vocab=VOCAB, dim=dim, depth=depth, heads=heads, tied=tied)
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        for tokens in batches(steps, 16, 0, cut):
            optimizer.zero_grad()
            F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
    held = batches(16, 32, cut, len(text))
    return Tiny(model.eval(), batches(32, 16, 0, cut), held)


@functools.cache
def _tokens() -> Tensor:
    data = text_of("python-docs")[:CHARACTERS].encode()[:CHARACTERS]
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long().clamp(max=VOCAB - 1)
