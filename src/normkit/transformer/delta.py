"""The gated delta rule, and the sublayer around it in the place of attention, as Qwen3-Next and Kimi Linear have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.residual.norms import NormName, make_norm
from normkit.statistics import accurate, full_precision
from normkit.transformer.attention import LinearName, State, check_kind, check_samples, make_linear, restore_cache

CHUNK = {"head": 64, "feature": 16}  # decays of features make a cube of each chunk
DECAYS = tuple(CHUNK)
GATES: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "sigmoid": torch.sigmoid}
EPS = 1e-6  # of the length of queries and keys


class Memory(NamedTuple):
    """The last inputs of the convolution (B, channels, taps - 1), and the state (B, heads, key_dim, value_dim)."""

    tail: Tensor
    state: Tensor


def delta_scan(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor | None = None, *, chunk: int = 64
) -> tuple[Tensor, Tensor]:
    """Read a memory that each token corrects; return what was read, (..., T, V), and the memory behind the last token.

        S_t = D_t S_{t-1} + beta_t k_t (v_t - (D_t S_{t-1})ᵀ k_t)ᵀ,    y_t = S_tᵀ q_t,    D_t = diag(exp(decay_t))

    q and k are (..., T, K), v is (..., T, V), ``decay`` at most 0, (..., T, 1) or (..., T, K), ``beta`` (..., T, 1),
    ``state`` is S before the first token, (..., K, V), 0 by default. Inside a chunk the corrections are the solution of
    one triangular system. Every exponent is a sum of decays between two tokens, never a difference of such sums.

    >>> one = torch.ones(1, 2, 1)
    >>> delta_scan(one, one, torch.tensor([[[4.0], [2.0]]]), 0 * one, one / 2)[0].flatten()
    tensor([2., 2.])
    """
    state = q.new_zeros(*q.shape[:-2], q.shape[-1], v.shape[-1]) if state is None else state
    if q.shape[-2] == 0:
        return q.new_zeros(v.shape), state
    results = []
    for part in zip(*(x.split(chunk, -2) for x in (q, k, v, decay, beta)), strict=True):
        y, state = _chunk(state, *part)
        results.append(y)
    return torch.cat(results, -2), state


def _chunk(state: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    length = q.shape[-2]
    later = torch.ones(length, length, dtype=torch.bool, device=q.device).tril(-1)[..., None]
    each = torch.where(later, decay.unsqueeze(-2), 0)  # token, and the earlier one that it decays
    between = each.cumsum(-3).exp()
    seen = between.squeeze(-1) if decay.shape[-1] == 1 else None
    own, asked = ((_products(x, k, between) if seen is None else x @ k.mT * seen) for x in (k, q))
    from_start = decay.cumsum(-2).exp()
    system = beta * own.tril(-1)
    wrong = beta * (v - (k * from_start) @ state)
    u = torch.linalg.solve_triangular(system, wrong, upper=False, unitriangular=True)
    y = (q * from_start) @ state + asked.tril() @ u
    return y, from_start[..., -1:, :].mT * state + (k * between[..., -1, :, :]).mT @ u


def _products(x: Tensor, k: Tensor, between: Tensor) -> Tensor:
    """Each product of x and an earlier key whose features have decayed since, (..., T, T)."""
    return (x.unsqueeze(-2) * k.unsqueeze(-3) * between).sum(-1)


class DeltaNet(nn.Module):
    """Let tokens read each other through a memory of fixed size, which each of them decays and corrects.

        q, k, v = silu(convolve(x Wqᵀ, x Wkᵀ, x Wvᵀ))    each feature over its last ``taps`` tokens
        q, k = q / sqrt(|q|² + 1e-6) / sqrt(key_dim), k / sqrt(|k|² + 1e-6)
        beta, decay = sigmoid(x Wbᵀ), -exp(decay_rate) softplus(x Waᵀ + decay_offset)
        S_t = D_t S_{t-1} + beta_t k_t (v_t - (D_t S_{t-1})ᵀ k_t)ᵀ,    D_t = diag(exp(decay_t))
        A(x) = join(norm(S_tᵀ q_t) * gate(x Wgᵀ)) Woᵀ

    Gated DeltaNet (Yang et al., 2024), arXiv 2412.06464, as Qwen3-Next has it; with ``decay="feature"`` Kimi Delta
    Attention, arXiv 2510.26692.

    Args:
        dim: features of the stream.
        heads: how many memories there are.
        key_heads: how many heads queries and keys have; it must divide heads, and neighbours share one.
        key_dim, value_dim: features of a head of keys, and of values; dim / heads by default.
        taps: tokens that the convolution sees, its own included.
        decay: one number for a ``"head"``, or one for each ``"feature"`` of its keys.
        gate: ``"silu"`` or ``"sigmoid"``.
        rank: of features, the decay and the gate go through so many; None: through none.
        norm: of each head's result, by name or as a function of the width.
        linear: the linear maps are of another kind than torch's.
        causal: True; there is no other form.
    """

    turned = 0
    query: nn.Module
    key: nn.Module
    value: nn.Module
    beta: nn.Module
    decay: nn.Module
    gate: nn.Module

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        key_heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        taps: int = 4,
        decay: str = "head",
        gate: str = "silu",
        rank: int | None = None,
        norm: NormName = "rmsnorm",
        linear: LinearName = "linear",
        causal: bool = True,
    ):
        super().__init__()
        if not causal:
            raise ValueError("DeltaNet: causal must be True; a memory of the past has no other form")
        self._cut(dim, heads, key_heads, key_dim, value_dim)
        self.taps = check.size(self, "taps", taps)
        self.decays = check.choice(self, "decay", decay, DECAYS)
        self.activation = check.choice(self, "gate", gate, tuple(GATES))
        keys, values = self.key_heads * self.key_dim, self.heads * self.value_dim
        decays = self.heads * (self.key_dim if decay == "feature" else 1)
        for name, width in {"query": keys, "key": keys, "value": values, "beta": self.heads}.items():
            self.add_module(name, make_linear(self, linear, dim, width, False))
        for name, width in {"decay": decays, "gate": values}.items():
            self.add_module(name, self._narrow(linear, dim, rank, width))
        self.output = make_linear(self, linear, values, dim, False)
        self.sizes = [keys, keys, values]
        self.convolution = nn.Conv1d(sum(self.sizes), sum(self.sizes), self.taps, groups=sum(self.sizes), bias=False)
        self.decay_rate = nn.Parameter(torch.empty(self.heads).uniform_(0.01, 16.0).log())
        self.decay_offset = nn.Parameter(torch.ones(decays))
        self.norm = make_norm(self, norm, self.value_dim)

    def _cut(self, dim: int, heads: int, key_heads: int | None, key_dim: int | None, value_dim: int | None) -> None:
        """Say how many heads there are, and how wide each is."""
        self.heads = check.size(self, "heads", heads)
        self.key_heads = self.heads if key_heads is None else check.size(self, "key_heads", key_heads)
        check.divides(self, "key_heads", self.key_heads, "heads", self.heads)
        if key_dim is None or value_dim is None:
            check.divides(self, "heads", self.heads, "dim", dim)
        self.key_dim = dim // heads if key_dim is None else check.size(self, "key_dim", key_dim)
        self.value_dim = dim // heads if value_dim is None else check.size(self, "value_dim", value_dim)

    def _narrow(self, linear: LinearName, dim: int, rank: int | None, width: int) -> nn.Module:
        if rank is None:
            return make_linear(self, linear, dim, width, False)
        rank = check.size(self, "rank", rank)
        return nn.Sequential(*(make_linear(self, linear, *sizes, False) for sizes in ((dim, rank), (rank, width))))

    @restore_cache
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        cache: State | None = None,
        angles: Any = None,
        sphere: Any = None,
    ) -> Tensor:
        """Mix the tokens of ``x`` (B, T, dim) with those behind ``cache``; positions are not turned.

        Of a mask (B, S), True where a token may be read, the others count as zeros.
        """
        check_kind(self, cache, State)
        past = 0 if cache is None else cache.length
        if mask is not None:
            check.mask(self, "mask", mask, (x.shape[0], past + x.shape[1]), x)
            x = torch.where(mask[:, past:, None], x, 0)
        memory = None if cache is None else cache.state
        check_kind(self, memory, Memory)  # another core's is a State as well
        check_samples(self, None if memory is None else memory.tail, x)
        if memory is not None and memory.state.shape[1] != self.heads:
            raise ValueError(f"DeltaNet: cache is of {memory.state.shape[1]} heads, but the layer has {self.heads}")
        q, k, v, tail = self._convolved(x, memory)
        q, k, v, beta, decay = (accurate(z) for z in (q, k, v, self.beta(x), self.decay(x)))
        with full_precision(q):
            q, k = (z * (z.square().sum(-1, keepdim=True) + EPS).rsqrt() for z in (q, k))
            q, k = (z.repeat_interleave(self.heads // self.key_heads, 1) for z in (q * self.key_dim**-0.5, k))
            rate = self.decay_rate.to(q.dtype).exp()[:, None, None]
            decay = -rate * F.softplus(self._heads(decay + self.decay_offset.to(q.dtype), self.heads))
            state = None if memory is None else memory.state
            beta = self._heads(beta.sigmoid(), self.heads)
            y, state = delta_scan(q, k, v, decay, beta, state, chunk=CHUNK[self.decays])
        if cache is not None:
            cache.state, cache.length = Memory(tail, state), past + x.shape[1]
        gate = GATES[self.activation](self.gate(x).to(y.dtype).unflatten(-1, (self.heads, -1)))
        return self.output((self.norm(y.transpose(1, 2)) * gate).to(x.dtype).flatten(2))

    def empty_cache(self) -> State:
        """Return a cache for :meth:`forward`: the memory, and the tokens that the convolution still sees."""
        return State()

    def _convolved(self, x: Tensor, memory: Memory | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Project and convolve: q, k and v by heads (B, heads, T, features), and the last inputs."""
        z = torch.cat([self.query(x), self.key(x), self.value(x)], -1).mT
        before = z.new_zeros(*z.shape[:2], self.taps - 1) if memory is None else memory.tail
        z = torch.cat([before, z], -1)
        tail = z[..., z.shape[-1] - self.taps + 1 :]
        if x.shape[1]:
            z = F.silu(F.conv1d(z, self.convolution.weight.to(z.dtype), groups=z.shape[1])).mT
        else:  # fewer inputs than a convolution takes
            z = z[..., :0].mT
        counts = (self.key_heads, self.key_heads, self.heads)
        q, k, v = (self._heads(part, heads) for part, heads in zip(z.split(self.sizes, -1), counts, strict=True))
        return q, k, v, tail

    def _heads(self, z: Tensor, heads: int) -> Tensor:
        """Cut (B, T, features) into heads: (B, heads, T, features of one)."""
        return z.unflatten(-1, (heads, -1)).transpose(1, 2)
