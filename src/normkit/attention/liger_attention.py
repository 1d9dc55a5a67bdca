"""Liger attention: a pretrained softmax layer made half gated linear, half a sliding window, without new parameters."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.attention._core import softmax_formula
from normkit.attention._linear import LinearCore, accurate, full_precision, hide
from normkit.attention._scan import advance, gated_scan
from normkit.catalog import method
from normkit.ops.rope import rotate, turns


class Memory(NamedTuple):
    """The linear branch's state, the window's rotated keys and its values, and the tokens so far (N, 1, 1, 1)."""

    sums: Tensor
    keys: Tensor
    values: Tensor
    seen: Tensor


@method(
    "liger-attention",
    paper="Liger: Linearizing Large Language Models to Gated Recurrent Structures (Lan et al., 2025), arXiv 2503.01496",
    shape="N heads T C",
    over="S",
    inputs={"k": "N heads T C", "v": "N heads T C", "mask?": "N 1 1 T : bool"},
    example={"heads": 2},
)
class LigerAttention(LinearCore):
    """Mix softmax attention over a window with gated linear attention over the whole past, gated by the keys
    themselves.

    Turns a pretrained softmax layer into one of linear cost that a short tuning repairs. Per element
    ``G = sigmoid(k)^(1 / gate_normalizer)``, with f the softmax over the features and rot the rotary embedding,

        S_t = G_t[:, None] * S_{t-1} + f(k_t)ᵀ v_t,    o_t = f(q_t) S_t
        p_t = softmax(rot(q_t) rot(k_j)ᵀ / sqrt(head_dim)) v_j over t - window <= j <= t
        y   = ratio * p + (1 - ratio) * o

    Args:
        head_dim: features of a head; even with a rotary embedding.
        heads: number of heads; a model with fewer key heads repeats k and v before the core.
        window: tokens before the query that it sees, besides itself.
        rope_base: base of the rotary embedding, which must be the model's (500000 in Llama 3); None for no embedding.
            Features i and i + head_dim / 2 turn by ``t * rope_base^(-2i / head_dim)``.
        gate_normalizer: the root that is taken of the gate.
        ratio: the share of the window.
        causal: True; there is no other form.

    ``core(q, k, v, mask=None)``: all (N, heads, T, head_dim), q and k before any rotary embedding. ``mask`` broadcasts
    to (N, heads, 1, T); a token where it is False is not attended to and leaves the state as it is.
    ``step(q, k, v, state=None)`` takes one token (N, heads, head_dim) and returns its result and the state.

    Liger: Linearizing Large Language Models to Gated Recurrent Structures (Lan et al., 2025), arXiv 2503.01496.

    Differs from the paper, as the authors' code does, in: keys are not pooled into gates, since the code's pooling is
    the identity. Differs from the authors' code in: the sum is not rounded to bfloat16.
    """

    forms = (True,)

    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        window: int = 64,
        rope_base: float | None = 10000.0,
        gate_normalizer: float = 16,
        ratio: float = 0.5,
        causal: bool = True,
    ):
        super().__init__(head_dim, heads, causal)
        self.window = check.size(self, "window", window, 0)
        self.rope_base = None if rope_base is None else check.number(self, "rope_base", rope_base, 0, open_low=True)
        if rope_base is not None and head_dim % 2:
            raise ValueError(f"LigerAttention: head_dim must be even for a rotary embedding, not {head_dim}")
        self.gate_normalizer = check.number(self, "gate_normalizer", gate_normalizer, 0, open_low=True)
        self.ratio = check.number(self, "ratio", ratio)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v, same_length=True)
        seen = self._seen(mask, q, k)
        dtype = q.dtype
        q, k, v = accurate(q, k, v)
        k, v = hide(k, seen), hide(v, seen)
        time = torch.arange(q.shape[2], device=q.device, dtype=q.dtype).unsqueeze(-1)
        with full_precision(q):
            o = gated_scan(q.softmax(-1), hide(k.softmax(-1), seen), v, key_gate=hide(self._log_gate(k), seen))
            p = _window_attention(self._rotate(q, time), self._rotate(k, time), v, self.window, seen)
        return self._mix(p, o).to(dtype)

    def _mix(self, p: Tensor, o: Tensor) -> Tensor:
        return self.ratio * p + (1 - self.ratio) * o

    def _log_gate(self, k: Tensor) -> Tensor:
        return F.logsigmoid(k) / self.gate_normalizer

    def _rotate(self, x: Tensor, time: Tensor) -> Tensor:
        if self.rope_base is None:
            return x
        return rotate(x, turns(time.squeeze(-1), self.head_dim, self.rope_base, x.dtype))

    def step(self, q: Tensor, k: Tensor, v: Tensor, state: Memory | None = None) -> tuple[Tensor, Memory]:
        """Take one token: return its result and the state for the next."""
        self._check_token(q=q, k=k, v=v)
        dtype = q.dtype
        q, k, v = (x.unsqueeze(-2) for x in accurate(q, k, v))
        time = torch.zeros_like(q[:, :1, :, :1]) if state is None else state.seen
        sums = torch.zeros_like(k.mT * v) if state is None else state.sums
        keys, values = self._rotate(k, time), v
        if state is not None:
            keys, values = torch.cat([state.keys, keys], -2), torch.cat([state.values, values], -2)
        keys, values = keys[..., -self.window - 1 :, :], values[..., -self.window - 1 :, :]
        with full_precision(q):
            o, sums = advance(sums, q.softmax(-1), k.softmax(-1), v, self._log_gate(k).exp())
            p = softmax_formula(self._rotate(q, time), keys, values)
        return self._mix(p, o).squeeze(-2).to(dtype), Memory(sums, keys, values, time + 1)


def _window_attention(q: Tensor, k: Tensor, v: Tensor, window: int, seen: Tensor | None) -> Tensor:
    """Softmax attention of each query to itself and the ``window`` tokens before it, in blocks that see two blocks."""
    length = q.shape[2]
    width = max(1, window if window < length else length)
    blocks = max(1, (length + width - 1) // width)
    fill = (0, 0, 0, blocks * width - length)
    q, k, v = (F.pad(x, fill).unflatten(-2, (blocks, width)) for x in (q, k, v))
    k, v = _with_last_block(k), _with_last_block(v)
    steps = torch.arange(width, device=q.device)
    lag = steps.unsqueeze(-1) - torch.arange(-width, width, device=q.device)
    shown = (lag >= 0) & (lag <= window)
    first = torch.arange(blocks, device=q.device).view(-1, 1, 1) * width + torch.arange(-width, width, device=q.device)
    shown = shown & (first >= 0)
    if seen is not None:
        tokens = seen.expand(*seen.shape[:-2], length, 1)
        shown = shown & _with_last_block(F.pad(tokens, fill).unflatten(-2, (blocks, width))).mT
    return softmax_formula(q, k, v, shown).flatten(2, 3)[:, :, :length]


def _with_last_block(x: Tensor) -> Tensor:
    return torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[..., :-1, :, :], x], -2)
