"""Lightning attention: a causal linear attention with one decay a head."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.attention._linear import ACTIVATIONS, LinearCore, accurate, hide, inverse
from normkit.attention._scan import scan
from normkit.attention.core import Recurrent
from normkit.catalog import method


class Memory(NamedTuple):
    """The state of keys by values (N, heads, K, head_dim), and the number of tokens so far (N, 1, 1, 1)."""

    sums: Tensor
    seen: Tensor


@method(
    "lightning",
    paper="Scaling TransNormer to 175 Billion Parameters (Qin et al., 2023), arXiv 2307.14995",
    shape="N heads T C",
    over="heads C",
    inputs={"k": "N heads T C", "v": "N heads T C", "gate?": "N heads T C", "mask?": "N 1 1 T : bool"},
    example={"heads": 2},
)
class Lightning(Recurrent, LinearCore):
    """Sum the values of the past with a decay of the head's own, and divide the joined heads by their root mean square.

    For decoders of long texts: time is linear in the length, and the state of generation stays one size where a cache
    of keys and values would grow. Old tokens fade at a rate the data cannot change; ``softmax`` keeps each of them.

    The token mixer of TransNormerLLM:

        S_t = exp(-s_h) S_{t-1} + act(k_t)ᵀ v_t,    o_t = act(q_t) S_t,    y = o / sqrt(mean(o²) + eps) * gate

    The mean runs over all heads of a token. The slope is ``s_h = m_h (1 - layer / (layers - 1) + 1e-5)``, m_h those of
    ALiBi, so that the first layer forgets fastest and the last hardly at all.

    Args:
        head_dim: features of a head.
        heads: number of heads.
        layer: the layer's number in the model, from 0.
        layers: number of layers of the model.
        activation: of q and k: ``"silu"``, ``"1+elu"``, ``"elu"``, ``"relu"`` or None.
        lrpe: turn each feature x of q and k into ``[x cos(t theta), x sin(t theta)]`` with a learned ``theta`` (heads,
            head_dim); the model does so in its first layer.
        norm: divide by the root mean square.
        eps: added to the mean square, under the root.
        causal: True; there is no other form.

    ``core(q, k, v, gate=None, mask=None)``: all (N, heads, T, head_dim). ``mask`` broadcasts to (N, heads, 1, T) and is
    False where a token adds nothing to the state; the state decays over it.
    ``prefill(q, k, v, gate=None, mask=None, state=None)`` goes on from a state and returns the result and the state
    then; ``step(q, k, v, state=None, gate=None)`` takes one token (N, heads, head_dim). The state is a matrix a head.

    Scaling TransNormer to 175 Billion Parameters (Qin et al., 2023), arXiv 2307.14995; Lightning Attention-2 (Qin et
    al., 2024), arXiv 2401.04658.
    """

    forms = (True,)
    place = {"layer": "layer", "layers": "depth"}
    state = Memory

    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        layer: int = 0,
        layers: int = 12,
        activation: str | None = "silu",
        lrpe: bool = False,
        norm: bool = True,
        eps: float = 1e-6,
        causal: bool = True,
    ):
        super().__init__(head_dim, heads, causal)
        self.layers = check.size(self, "layers", layers)
        self.layer = check.size(self, "layer", layer, 0)
        if self.layer >= self.layers:
            raise ValueError(f"Lightning: layer must be less than layers={layers}, not {layer}")
        self.activation = check.choice(self, "activation", activation, tuple(ACTIVATIONS))
        self.norm = bool(norm)
        self.eps = check.eps(self, eps)
        width = heads * head_dim
        rates = 10000 ** (-2 / width * torch.arange(width).view(heads, head_dim)) if lrpe else None
        self.theta = None if rates is None else nn.Parameter(rates)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Attend."""
        return self.prefill(q, k, v, gate, mask)[0]

    def prefill(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        gate: Tensor | None = None,
        mask: Tensor | None = None,
        state: Memory | None = None,
    ) -> tuple[Tensor, Memory]:
        """Attend from the tokens behind ``state``: return the result and the state behind them."""
        self._check(q, k, v, same_length=True)
        if gate is not None:
            check.values(self, "gate", gate, q.shape, like=q)
        self._check_state(state, q)
        seen = self._mask_of_keys(mask, q, k)
        dtype, length = q.dtype, q.shape[2]
        q, k, v = accurate(q, k, v)
        past = q.new_zeros(q.shape[0], 1, 1, 1) if state is None else state.seen
        time = past + torch.arange(length, device=q.device, dtype=q.dtype).unsqueeze(-1)
        q, k = self._features(q, time), hide(self._features(k, time), seen)
        with statistics.full_precision(q):
            o, sums = scan(q, k, hide(v, seen), self._slopes(q), None if state is None else state.sums)
        return self._output(o, gate).to(dtype), Memory(sums, past + length)

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, state: Memory | None = None, gate: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Take one token: return its result and the state for the next."""
        return self._one({"q": q, "k": k, "v": v, **({} if gate is None else {"gate": gate})}, state)

    def _features(self, x: Tensor, time: Tensor) -> Tensor:
        x = ACTIVATIONS[self.activation](x)
        if self.theta is None:
            return x
        angle = time * self.theta.to(x.dtype).unsqueeze(-2)
        return torch.cat([x * angle.cos(), x * angle.sin()], -1)

    def _slopes(self, like: Tensor) -> Tensor:
        depth = 1 - self.layer / max(self.layers - 1, 1) + 1e-5
        return (alibi_slopes(self.heads, like) * depth).view(-1, 1, 1)

    def _output(self, o: Tensor, gate: Tensor | None) -> Tensor:
        if self.norm:
            o = o * inverse(statistics.root(o.square().mean((1, 3), keepdim=True) + self.eps))
        return o if gate is None else o * gate


def alibi_slopes(heads: int, like: Tensor) -> Tensor:
    """The slopes of ALiBi: a geometric row, filled up with every second one of the next finer row.

    >>> alibi_slopes(3, torch.ones(1))
    tensor([0.0625, 0.0039, 0.2500])
    """
    power = 1 << (heads.bit_length() - 1)
    ranks = torch.arange(max(heads, power), device=like.device, dtype=like.dtype)
    coarse, fine = -8 / power * (ranks[:power] + 1), -4 / power * (2 * ranks[: heads - power] + 1)
    return (math.log(2) * torch.cat([coarse, fine])).exp()
