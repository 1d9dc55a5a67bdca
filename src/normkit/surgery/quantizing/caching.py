"""A cache of keys and values for ``generate``, two bits a number, after NSNQuant's transform."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.ops import codes
from normkit.optional import library
from normkit.quant.nsnquant import LEAST, NSNQuant

__all__ = ["nsnquant_cache"]

WIDTH, WORDS = 8, 256  # numbers that share a code word, and code words: an index is a byte
ROWS = 512  # eights of numbers that are looked up at once
DRAWN, ROUNDS = 2**14, 12  # of the codebook
PLACES = torch.arange(WIDTH, device="cpu")
BITS = 2.0**PLACES
SIGNS = 2.0 * (torch.arange(WORDS, device="cpu").unsqueeze(1) >> PLACES & 1) - 1  # of eight numbers, by their byte


class Codes(NamedTuple):
    """A chunk of tokens: bytes of signs and of code words, and what turns them back."""

    signs: Tensor
    words: Tensor
    scale1: Tensor
    shift: Tensor
    scale2: Tensor


@functools.cache
def codebook() -> Tensor:
    """Return 256 directions of 8 positive numbers, each as long as what is nearest to it, from normal samples.

    Spherical k-means from a fixed start: the same for every model.

    >>> codebook().shape
    torch.Size([256, 8])
    """
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(DRAWN, WIDTH, generator=generator, device="cpu").abs()
    words = torch.nn.functional.normalize(samples[:WORDS], dim=1)
    for _ in range(ROUNDS):
        nearest = (samples @ words.T).argmax(1)
        words = torch.nn.functional.normalize(
            words * 1e-6 + torch.zeros_like(words).index_add(0, nearest, samples), dim=1
        )
    best = (samples @ words.T).max(1)
    total = torch.zeros(WORDS, device="cpu").index_add(0, best.indices, best.values)
    return words * (total / torch.bincount(best.indices, minlength=WORDS).clamp(min=1)).unsqueeze(1)


@functools.cache
def _directions() -> Tensor:
    return torch.nn.functional.normalize(codebook(), dim=1)


def encode(x: Tensor) -> Codes:
    """Turn a chunk (..., T, D) into two bits a number, and three scales in half precision; D is a power of two from 8.

    >>> x = torch.randn(1, 2, 64, 16, generator=torch.Generator().manual_seed(0))
    >>> error = decode(encode(x), x.dtype) - x
    >>> bool(error.square().mean() < 0.2)
    True
    """
    transform, wide = _transform(x.shape[-1]), x.float()
    encoding = codes.encoded(wide, _directions().to(x.device), max(transform.eps**2, LEAST))
    if encoding is not None:
        return Codes(*encoding[:2], *map(_half, encoding[2:]))
    y, *rest = transform(wide)
    parts = y.unflatten(-1, (-1, WIDTH))
    signs = ((parts >= 0).float() @ BITS.to(x.device)).to(torch.uint8)
    words = _nearest(parts.abs().flatten(0, -2)).view(parts.shape[:-1])
    scale1, shift, scale2 = (_half(value) for value in rest)
    return Codes(signs, words, scale1, shift, scale2)


def decode(coded: Codes, dtype: torch.dtype) -> Tensor:
    """Turn a chunk back."""
    scales = (coded.scale1, coded.shift, coded.scale2)
    vectors = codes.decoded(coded.signs, coded.words, codebook().to(coded.words.device), *scales)
    if vectors is not None:
        return vectors.to(dtype)
    factors = (
        table.to(index.device).index_select(0, index.flatten().int())
        for table, index in ((codebook(), coded.words), (SIGNS, coded.signs))
    )
    y = torch.mul(*factors).view(*coded.words.shape[:-1], WIDTH * coded.words.shape[-1])
    return _transform(y.shape[-1]).inverse(y, *(value.float() for value in scales)).to(dtype)


def _nearest(sizes: Tensor) -> Tensor:
    """Return the number of the code word that is nearest to each eight of sizes (N, 8).

    It takes the place of the last 8 bits of their product, which is not below 0, so that one maximum finds it.
    """
    directions = _directions().to(sizes.device)
    number, maxima = torch.arange(WORDS, dtype=torch.int32, device=sizes.device), []
    for some in sizes.split(ROWS):  # whose products with all code words stay in a processor's cache
        product = (some @ directions.T).view(torch.int32)
        maxima.append(product.bitwise_and_(-WORDS).bitwise_or_(number).amax(-1))
    return torch.cat(maxima).bitwise_and_(WORDS - 1).to(torch.uint8)


def nsnquant_cache(*, chunk: int = 64) -> Any:
    """Return an empty cache for ``generate`` of ``transformers``: ``past_key_values=nsnquant_cache()``.

    Every ``chunk`` tokens of keys and of values are turned into two bits a number, once, and forgotten: a sign, and for
    eight numbers a byte that says how large they are among each other, from one codebook for all models. The tokens
    since then are kept as they are. ``cache.bytes()`` tells what is held.

    Heads must have a power of two of features, 8 at least. One text or a batch, sampling and beams. An encoder-decoder
    takes two, as ``EncoderDecoderCache(nsnquant_cache(), nsnquant_cache())``; layers of linear attention take none.

    NSNQuant (2025), arXiv 2505.18231.

    Differs from the paper in: keys come after the rotary embedding, as a cache is given them; scales are in half
    precision, not in 4 bits; the codebook is that of k-means, without finer tuning; the newest tokens are not rounded.
    """
    chunk = check.size("nsnquant_cache", "chunk", chunk)
    layer, cache = _classes()
    return cache(layer_class_to_replicate=functools.partial(layer, chunk=chunk))


@functools.cache
def _transform(width: int) -> NSNQuant:
    if width < WIDTH or width & (width - 1):
        raise ValueError(f"nsnquant_cache: heads must have a power of two of features, at least {WIDTH}, not {width}")
    return NSNQuant(width)


def _half(x: Tensor) -> Tensor:
    most = torch.finfo(torch.float16).max
    return x.to(torch.float16) if not x.numel() or float(x.abs().amax()) < most else x.to(torch.bfloat16)


class _Coded:
    """One layer's keys and values: chunks in codes, and the tokens since."""

    keys: Any
    values: Any
    coded: Any

    def __init__(self, chunk: int, **kwargs):
        super().__init__()
        self.chunk, self.coded = chunk, ([], [])

    def update(self, key_states, value_states, *args, **kwargs):
        """Add tokens, and return all."""
        super().update(key_states, value_states)  # type: ignore[misc]
        states = tuple(
            torch.cat([*(decode(one, new.dtype) for one in coded), new], -2)
            for coded, new in zip(self.coded, (self.keys, self.values), strict=True)
        )
        full = self.keys.shape[-2] // self.chunk * self.chunk
        for at in range(0, full, self.chunk):
            for coded, new in zip(self.coded, (self.keys, self.values), strict=True):
                coded.append(encode(new[..., at : at + self.chunk, :]))
        self.keys, self.values = (new[..., full:, :].clone() for new in (self.keys, self.values))
        return states

    def get_seq_length(self):
        """How many tokens there are."""
        return super().get_seq_length() + self.chunk * len(self.coded[0])  # type: ignore[misc]

    def reset(self):
        """Forget all."""
        super().reset()  # type: ignore[misc]
        self.coded = ([], [])

    def crop(self, *args, **kwargs):
        """Refuse to go back: tokens in codes cannot be cut."""
        raise ValueError("nsnquant_cache: a cache in codes cannot be cropped, as assisted generation would do")

    def _rows(self, change):
        self.coded = tuple([Codes(*map(change, one)) for one in coded] for coded in self.coded)
        self.keys, self.values = change(self.keys), change(self.values)

    def reorder_cache(self, beam_idx):
        """Go on with other texts of a batch."""
        if self.get_seq_length():
            self._rows(lambda x: x.index_select(0, beam_idx.to(x.device)))

    def batch_repeat_interleave(self, repeats):
        """Repeat each text of a batch."""
        if self.get_seq_length():
            self._rows(lambda x: x.repeat_interleave(repeats, 0))

    def batch_select_indices(self, indices):
        """Keep some texts of a batch."""
        if self.get_seq_length():
            self._rows(lambda x: x[indices])

    def offload(self):
        """Stay: codes are small."""

    prefetch = offload


class _Counted:
    """Keys and values in two bits a number."""

    layers: Any

    def bytes(self) -> int:
        """What codes, scales and newest tokens take."""
        held = [t for layer in self.layers if layer.is_initialized for t in (layer.keys, layer.values)]
        held += [t for layer in self.layers for coded in layer.coded for one in coded for t in one]
        return sum(math.prod(t.shape) * t.element_size() for t in held)

    def _refuse_states(self, *args, **kwargs):
        raise ValueError("nsnquant_cache: a cache in codes holds keys and values, not the states of linear attention")

    get_conv_state = update_conv_state = get_recurrent_state = update_recurrent_state = _refuse_states
    has_previous_state = _refuse_states


@functools.cache
def _classes() -> tuple[Any, Any]:
    """The classes of a layer and of a cache, with those of transformers behind them."""
    version = library("transformers").__version__
    from transformers import cache_utils

    if not hasattr(cache_utils, "DynamicLayer"):
        raise ValueError(f"transformers {version} has no caches made of layers, which a cache of few bits is: 4.57 has")
    layer = type("Layer", (_Coded, cache_utils.DynamicLayer), {"__doc__": _Coded.__doc__, "__module__": __name__})
    names = {"__doc__": _Counted.__doc__, "__module__": __name__}
    return layer, type("NSNQuantCache", (_Counted, cache_utils.Cache), names)


def __getattr__(name: str) -> Any:
    """Where a file that holds a cache finds its classes."""
    classes = ("Layer", "NSNQuantCache")
    if name not in classes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _classes()[classes.index(name)]
