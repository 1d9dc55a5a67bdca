"""Compressed attention: a window of near tokens, and one entry for each few far ones, DeepSeek-V4's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog, check, ops
from normkit.ops.rope import Frequencies, Turns
from normkit.residual.norms import NormName, make_norm
from normkit.statistics import accurate
from normkit.transformer.attention import (
    LinearName,
    Past,
    check_kind,
    check_samples,
    key_mask,
    make_linear,
    restore_cache,
)

UNIT = ops.Row(eps=1e-6)


def turn_last(z: Tensor, angles: Turns) -> Tensor:
    """Turn the last features of z (..., T, features) in pairs, as many as there are angles for."""
    still = z.shape[-1] - 2 * angles[0].shape[-1]
    return torch.cat([z[..., :still], ops.rotate(z[..., still:], angles, "pairs")], -1)


class Windows:
    """What a compressor keeps of the past: its entries, the open window's tokens, and half of the last full one."""

    def __init__(self) -> None:
        self.entries: Tensor | None = None
        self.open: tuple[Tensor, Tensor] | None = None
        self.last: tuple[Tensor, Tensor] | None = None

    def mark(self) -> tuple[Any, ...]:
        """Return what :meth:`rewind` needs: of the entries, which are only appended, how many there are."""
        return None if self.entries is None else self.entries.shape[1], self.open, self.last

    def rewind(self, mark: tuple[Any, ...]) -> None:
        """Go back to the mark."""
        count, self.open, self.last = mark
        self.entries = None if self.entries is None or count is None else self.entries[:, :count]


class CompressedCache(Past):
    """What a layer keeps of its past: the keys of the nearest tokens, and what its compressors keep."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.length = 0
        self.windows, self.index = Windows(), Windows()

    def mark(self) -> tuple[Any, ...]:
        """Return what :meth:`rewind` needs."""
        return self.keys, self.length, self.windows.mark(), self.index.mark()

    def rewind(self, mark: tuple[Any, ...]) -> None:
        """Go back to the mark."""
        self.keys, self.length, windows, index = mark
        self.windows.rewind(windows)
        self.index.rewind(index)


class Grouped(nn.Module):
    """Linear maps of neighbouring features, group by group: weight (groups * outputs, inputs)."""

    def __init__(self, inputs: int, outputs: int, groups: int):
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.empty(groups * outputs, inputs).uniform_(-(inputs**-0.5), inputs**-0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., groups * inputs) to (..., groups * outputs)."""
        parts = x.unflatten(-1, (self.groups, 1, -1)) @ self.weight.to(x.dtype).unflatten(0, (self.groups, -1)).mT
        return parts.flatten(-3)


class Compressor(nn.Module):
    """Make one entry of each ``rate`` tokens: a softmax over them, feature by feature, of gates and a learned bias.

    With ``overlap`` an entry is also of the window before, by features of their own.
    """

    def __init__(self, dim: int, size: int, rate: int, overlap: bool, norm: NormName, linear: LinearName):
        super().__init__()
        self.size, self.rate, self.overlap = size, rate, overlap
        width = size * (1 + overlap)
        self.key, self.gate = (make_linear(self, linear, dim, width, False) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(rate, width))
        self.norm = make_norm(self, norm, size)

    def forward(self, x: Tensor, kept: Windows, frequencies: Frequencies) -> Tensor:
        """Return all entries (B, entries, size) after the tokens ``x`` (B, T, dim), turned by their first positions."""
        k, g = self.key(x), self.gate(x)
        if kept.open is not None:
            k, g = torch.cat([kept.open[0], k], 1), torch.cat([kept.open[1], g], 1)
        full = k.shape[1] // self.rate * self.rate
        kept.open = k[:, full:], g[:, full:]
        if kept.entries is None:
            kept.entries = k.new_zeros(len(k), 0, self.size)
        if full:
            k, g = (z[:, :full].unflatten(1, (-1, self.rate)) for z in (k, g))
            new = self.norm(self._pool(k, g, kept))
            before = kept.entries.shape[1]
            at = torch.arange(before, before + new.shape[1], device=x.device) * self.rate
            angles = frequencies.turns(at, 2 * len(frequencies.values))
            kept.entries = torch.cat([kept.entries, turn_last(new, angles)], 1)
        return kept.entries

    def _pool(self, k: Tensor, g: Tensor, kept: Windows) -> Tensor:
        """Sum the tokens of each window, (B, windows, rate, width)."""
        g = g + self.bias.to(g.dtype)
        if self.overlap:
            n = self.size
            last = kept.last or (torch.zeros_like(k[:, :1, :, :n]), torch.full_like(g[:, :1, :, :n], -torch.inf))
            kept.last = k[:, -1:, :, :n], g[:, -1:, :, :n]
            k, g = (
                torch.cat([torch.cat([old, z[:, :-1, :, :n]], 1), z[..., n:]], 2)
                for old, z in zip(last, (k, g), strict=True)
            )
        return (k * torch.softmax(accurate(g), 2).to(k.dtype)).sum(2)


class Indexer(nn.Module):
    """Choose the ``top_k`` entries that each token reads, by entries and queries of its own, smaller ones."""

    def __init__(
        self, dim: int, rank: int, rate: int, heads: int, size: int, top_k: int, norm: NormName, linear: LinearName
    ):
        super().__init__()
        self.heads, self.size, self.top_k = heads, size, top_k
        self.compressor = Compressor(dim, size, rate, True, norm, linear)
        self.query = make_linear(self, linear, rank, heads * size, False)
        self.weigh = make_linear(self, linear, dim, heads, False)

    def forward(
        self, x: Tensor, few: Tensor, seen: Tensor, kept: Windows, frequencies: Frequencies, angles: Turns
    ) -> Tensor:
        """Return which of the entries that are ``seen`` (T, entries) each token reads, (B, T, entries)."""
        entries = accurate(self.compressor(x, kept, frequencies))
        q = turn_last(self.query(few).unflatten(-1, (self.heads, -1)).transpose(1, 2), angles)
        scores = torch.relu(accurate(q) @ entries.unsqueeze(1).mT) * self.size**-0.5
        weights = accurate(self.weigh(x)) * self.heads**-0.5
        total = (scores * weights.mT.unsqueeze(-1)).sum(1).masked_fill(~seen, -torch.inf)
        # of equal ones the first, whatever comes later, which topk does not promise
        best = total.sort(dim=-1, descending=True, stable=True).indices[..., : self.top_k]
        return torch.zeros_like(total, dtype=torch.bool).scatter(-1, best, True) & seen


class CompressedAttention(nn.Module):
    """Attention to the tokens of a window one by one and to all before in compressed entries, by one head of keys.

        c = query_norm(x Wdᵀ),    q_h = turn(rms(c Uhᵀ)),    k = turn(norm(x Wkᵀ)),    e = compress(x)
        y_h = turn_back(softmax(q_h (k, e)ᵀ / sqrt(head_dim), with a sink) (k, e)),    A(x) = join(y Wgᵀ) Woᵀ

    Keys are the values too, so that what is read is turned back by the reader's own position. Entry w is of the tokens
    w rate to (w + 1) rate - 1, and seen from the last of them on. DeepSeek-V4's.

    Args:
        dim: features of the stream.
        heads, head_dim: heads of the queries, and features of a head, of the keys and of an entry.
        query_rank: queries are made of so many normalized features.
        groups, output_rank: the joined heads are cut into groups, each of which is first made that many features.
        window: how many positions back a query sees tokens, itself included.
        frequencies: the rotary angles of the last features of a head.
        rate: tokens of an entry; None: there are no entries.
        index_heads, index_dim, top_k: with these an entry is of two windows, and a query reads the ``top_k`` entries
            that an indexer of so many heads and features chooses; None: all that it sees.
        norm: of queries' features, keys and entries, by name or as a function of the width.
        linear: the linear maps are of another kind than torch's.
        causal: only True.
    """

    turned = 0

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        head_dim: int,
        query_rank: int,
        groups: int,
        output_rank: int,
        window: int,
        frequencies: Frequencies,
        rate: int | None = None,
        index_heads: int | None = None,
        index_dim: int | None = None,
        top_k: int | None = None,
        norm: NormName = "rmsnorm",
        linear: LinearName = "linear",
        causal: bool = True,
    ):
        super().__init__()
        if causal is not True:
            raise ValueError("CompressedAttention: causal must be True, since entries are of what is past")
        self.heads, self.head_dim = check.size(self, "heads", heads), check.size(self, "head_dim", head_dim)
        self.window = check.size(self, "window", window)
        rank, groups = check.size(self, "query_rank", query_rank), check.size(self, "groups", groups)
        check.divides(self, "groups", groups, "heads", self.heads)
        self.frequencies = self._check_frequencies(frequencies)
        self.query_down = make_linear(self, linear, dim, rank, False)
        self.query_norm = make_norm(self, norm, rank)
        self.query_up = make_linear(self, linear, rank, self.heads * self.head_dim, False)
        self.key = make_linear(self, linear, dim, self.head_dim, False)
        self.norm = make_norm(self, norm, self.head_dim)
        self.core = catalog.create("attention-sinks", self.head_dim, heads=self.heads, causal=False)
        output_rank = check.size(self, "output_rank", output_rank)
        self.output_down = Grouped(self.heads * self.head_dim // groups, output_rank, groups)
        self.output = make_linear(self, linear, groups * output_rank, dim, False)
        index = {"index_heads": index_heads, "index_dim": index_dim, "top_k": top_k}
        self._compress(dim, rank, rate, index, norm, linear)

    def _compress(
        self, dim: int, rank: int, rate: int | None, index: Mapping[str, int | None], norm: NormName, linear: LinearName
    ) -> None:
        """Build what makes entries of the past, where there is a rate, and what chooses among them."""
        self.rate = None if rate is None else check.size(self, "rate", rate)
        indexed = any(value is not None for value in index.values())
        if self.rate is not None:
            self.compressor = Compressor(dim, self.head_dim, self.rate, indexed, norm, linear)
        self.indexer = Indexer(dim, rank, *self._index(index), norm, linear) if indexed else None

    def _check_frequencies(self, frequencies: Any) -> Frequencies:
        if not isinstance(frequencies, Frequencies) or not 0 < 2 * len(frequencies.values) <= self.head_dim:
            raise ValueError(
                f"CompressedAttention: frequencies must be Frequencies of 1 to head_dim / 2 pairs, not {frequencies!r}"
            )
        return frequencies

    def _index(self, index: Mapping[str, int | None]) -> tuple[int, int, int, int]:
        """Return the rate, heads, features and entries of an indexer; refuse one of which something is missing."""
        names = [name for name, value in index.items() if value is not None]
        if len(names) < 3 or self.rate is None:
            raise ValueError(f"CompressedAttention: {', '.join(index)} and rate go together, but only {names} came")
        few, size, most = (check.size(self, name, value) for name, value in index.items())
        if size < 2 * len(self.frequencies.values):
            raise ValueError("CompressedAttention: index_dim must have the features that frequencies turn")
        return self.rate, few, size, most

    @restore_cache
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cache: CompressedCache | None = None,
        angles: Any = None,
        sphere: Any = None,
    ) -> Tensor:
        """Attend from every position of ``x`` (B, T, dim) to those it sees, of ``cache`` also.

        A ``mask``, True where a token is seen, is for layers without a rate: entries are of all tokens.
        """
        if mask is not None and self.rate is not None:
            raise ValueError("CompressedAttention: with a rate there is no mask, since entries are of all tokens")
        check_kind(self, cache, CompressedCache)
        kept = CompressedCache() if cache is None else cache
        check_samples(self, kept.keys, x)
        at = torch.arange(kept.length, kept.length + x.shape[1], device=x.device)
        own = self.frequencies.turns(at, 2 * len(self.frequencies.values))
        few = self.query_norm(self.query_down(x))
        q = self.query_up(few).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q = turn_last(ops.row_norm(q, rule=UNIT), own)
        k = turn_last(self.norm(self.key(x)), own)
        k = k if kept.keys is None else torch.cat([kept.keys, k], 1)
        kept.length += x.shape[1]
        kept.keys = k[:, max(0, k.shape[1] - self.window + 1) :]
        key = torch.arange(kept.length - k.shape[1], kept.length, device=x.device)
        seen = ((key <= at[:, None]) & (at[:, None] - key < self.window)).unsqueeze(0)
        if self.rate is not None:
            entries = self.compressor(x, kept.windows, self.frequencies)
            ready = torch.arange(entries.shape[1], device=x.device) < (at[:, None] + 1) // self.rate
            selected = ready.unsqueeze(0)
            if self.indexer is not None:
                selected = self.indexer(x, few, ready, kept.index, self.frequencies, own)
            k = torch.cat([k, entries], 1)
            seen = torch.cat([seen.expand(len(selected), -1, -1), selected], -1)
        seen, k = seen.unsqueeze(1), k.unsqueeze(1)
        if mask is not None:
            seen = seen & key_mask(self, mask, q, kept.length)[..., key]
        k = k.expand(-1, self.heads, -1, -1)
        y = turn_last(self.core(q, k, k, mask=seen), (own[0], -own[1]))
        return self.output(self.output_down(y.transpose(1, 2).flatten(2)))

    def empty_cache(self) -> CompressedCache:
        """Return a cache for :meth:`forward`."""
        return CompressedCache()
