"""Liger attention: a pretrained softmax layer made half gated linear, half a sliding window, without new parameters."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.attention._linear import LinearCore, accurate, hide
from normkit.attention._scan import gated_scan
from normkit.attention._window import Past, extend, last, window_attention
from normkit.attention.core import Recurrent, softmax_formula
from normkit.catalog import method
from normkit.ops.rope import rotate, turns
from normkit.statistics import full_precision


class Memory(NamedTuple):
    """The linear branch's state; the window's rotated keys, its values, which are seen; the tokens so far (N, 1)."""

    sums: Tensor
    keys: Tensor
    values: Tensor
    shown: Tensor
    seen: Tensor


@method(
    "liger-attention",
    paper="Liger: Linearizing Large Language Models to Gated Recurrent Structures (Lan et al., 2025), arXiv 2503.01496",
    shape="N heads T C",
    over="S",
    inputs={"k": "N heads T C", "v": "N heads T C", "mask?": "N 1 1 T : bool"},
    example={"heads": 2},
)
class LigerAttention(Recurrent, LinearCore):
    """Mix softmax attention over a window with linear attention over the past, gated by the keys themselves.

    For turning a pretrained language model into one of linear cost, without new parameters and with a short tuning. A
    model trained from scratch need not take its gates from its keys; ``lightning`` is made for that.

    Per element ``G = sigmoid(k)^(1 / gate_normalizer)``, with f the softmax over the features and rot the rotary
    embedding,

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
    ``prefill(q, k, v, mask=None, state=None)`` goes on from a state and returns the result and the state then;
    ``step(q, k, v, state=None)`` takes one token (N, heads, head_dim). The state is a matrix a head, and the window.

    Liger: Linearizing Large Language Models to Gated Recurrent Structures (Lan et al., 2025), arXiv 2503.01496.

    Differs from the paper, as the authors' code does, in: keys are not pooled into gates, since the code's pooling is
    the identity. Differs from the authors' code in: the sum is not rounded to bfloat16.
    """

    forms = (True,)
    state = Memory

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
        return self.prefill(q, k, v, mask)[0]

    def prefill(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, state: Memory | None = None
    ) -> tuple[Tensor, Memory]:
        """Attend from the tokens behind ``state``: return the result and the state behind them."""
        self._check(q, k, v, same_length=True)
        self._check_state(state, q)
        seen = self._mask_of_keys(mask, q, k)
        dtype = q.dtype
        q, k, v = accurate(q, k, v)
        k, v = hide(k, seen), hide(v, seen)
        sums, past = (None, None) if state is None else (state.sums, Past(*state[1:]))
        with full_precision(q):
            gate = hide(F.logsigmoid(k) / self.gate_normalizer, seen)
            o, sums = gated_scan(q.softmax(-1), hide(k.softmax(-1), seen), v, gate, state=sums)
            p, past = self._windowed(q, k, v, seen, past)
        return (self.ratio * p + (1 - self.ratio) * o).to(dtype), Memory(sums, *past)

    def _windowed(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, past: Past | None) -> tuple[Tensor, Past]:
        time = torch.arange(q.shape[2], device=q.device)
        if past is not None:
            time = time + past.seen.unsqueeze(-1)
        if self.rope_base is not None:
            angles = turns(time, self.head_dim, self.rope_base, q.dtype)
            q, k = rotate(q, angles), rotate(k, angles)
        whole = seen is None and past is None
        past = extend(past, k, v, seen)
        shown = None if whole else past.shown
        y = window_attention(q, past.keys, past.values, self.window + 1, shown, attend=softmax_formula)
        return y, last(past, self.window)
