"""RNoPE: rotary positions in a window, and every few layers none at all."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.attention._window import Past, extend, last, window_attention, within
from normkit.attention.core import Recurrent, softmax_attention
from normkit.catalog import method
from normkit.ops.rope import rotate, turns
from normkit.statistics import accurate


@method(
    "rnope",
    paper="Rope to Nope and Back Again: A New Hybrid Attention Strategy (Yang et al., 2025), arXiv 2501.18795",
    evidence="equations",
    shape="N heads T C",
    over="S",
    inputs={"k": "N heads T C", "v": "N heads T C", "mask?": "N heads T T : bool"},
    example={"heads": 2, "layer": 0, "window": 3},
    replaces=("softmax",),
    provenance="the paper's equations and the layout of the released models; no training code",
)
class RNoPE(Recurrent):
    """Attend with rotary positions to a window, or, in the last layer of each period, without positions to all.

    For long contexts: the windowed layers see order, the full ones retrieve from any distance. One core serves one
    layer,

        (layer + 1) % period == 0:   y_t = softmax(q_t k_jᵀ / sqrt(head_dim)) v_j             over j <= t
        else:                        the same of rope(q), rope(k),                             over t - window < j <= t

    where rope turns neighbouring pairs (2i, 2i + 1) by ``t * rope_base^(-2i / head_dim)``. A windowed layer costs as
    much as its window is wide.

    Args:
        head_dim: features of a head; even in a windowed layer.
        heads: number of heads.
        layer: index of the layer, from 0.
        period: each period ends with a full layer; 1 makes all of them full.
        window: keys that a query sees in a windowed layer, its own included.
        rope_base: base of the rotary embedding.
        causal: True; there is no other form.

    ``core(q, k, v, mask=None)``: all (N, heads, T, head_dim). ``core.full`` tells which kind of layer it is. A mask of
    single pairs, (N, heads, T, T), makes all scores; one of keys, (N, heads, 1, T), those of the window only.
    ``prefill(q, k, v, mask=None, state=None)`` takes the latter, goes on from a state, and returns the result and the
    state then; ``step(q, k, v, state=None)`` takes one token (N, heads, head_dim). The state are the keys and values
    that are still seen: of a window, or in a full layer all.

    Rope to Nope and Back Again: A New Hybrid Attention Strategy (Yang et al., 2025), arXiv 2501.18795, there RNoPE-SWA;
    from its equations and the layout of the released models, since there is no training code.
    """

    forms = (True,)
    crossed = False
    place = {"layer": "layer"}
    state = Past

    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        layer: int,
        period: int = 4,
        window: int = 4096,
        rope_base: float = 10000.0,
        causal: bool = True,
    ):
        super().__init__(head_dim, heads, causal)
        period = check.size(self, "period", period)
        self.full = (check.size(self, "layer", layer, 0) + 1) % period == 0
        self.window = check.size(self, "window", window)
        self.linear = not self.full
        self.rope_base = check.number(self, "rope_base", rope_base, 0, open_low=True)
        if not self.full and head_dim % 2:
            raise ValueError(f"RNoPE: head_dim must be even for a rotary embedding, not {head_dim}")

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        if not isinstance(mask, Tensor) or mask.dim() < 2 or mask.shape[-2] == 1:
            return self.prefill(q, k, v, mask)[0]
        self._check(q, k, v, same_length=True, free_value=True)
        self._check_mask(mask, q, k)
        q, k = self._rotate(q, k, None)
        window = q.shape[2] if self.full else self.window
        return softmax_attention(q, k, v, mask & within(window, q.shape[2], 0, q.device), scale=self._scale)

    def prefill(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, state: Past | None = None
    ) -> tuple[Tensor, Past]:
        """Attend from the tokens behind ``state``: return the result and the state behind them."""
        self._check(q, k, v, same_length=True, free_value=True)
        self._check_state(state, q)
        seen = self._mask_of_keys(mask, q, k)
        q, k = self._rotate(q, k, state)
        past = extend(state, k, v, seen)
        window = past.keys.shape[2] if self.full else self.window
        shown = None if seen is None and state is None else past.shown
        y = window_attention(q, past.keys, past.values, window, shown, scale=self._scale)
        return y, past if self.full else last(past, self.window - 1)

    def _rotate(self, q: Tensor, k: Tensor, state: Past | None) -> tuple[Tensor, Tensor]:
        """Turn by position and halve, which is exact: 6e4 in float16 could overflow by turning."""
        if self.full:
            return q, k
        time = torch.arange(q.shape[2], device=q.device)
        time = time if state is None else time + state.seen.unsqueeze(-1)
        cos, sin = turns(time, self.head_dim, self.rope_base, accurate(q.new_empty(0)).dtype)
        return rotate(q, (cos / 2, sin / 2), "pairs"), rotate(k, (cos / 2, sin / 2), "pairs")

    @property
    def _scale(self) -> float:
        return self.head_dim**-0.5 if self.full else 4 * self.head_dim**-0.5
