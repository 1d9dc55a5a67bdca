"""TransNormer: linear attention without a denominator, and attention in blocks."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check, statistics
from normkit.attention._core import softmax_formula
from normkit.attention._linear import ACTIVATIONS, LinearCore, accurate, full_precision, hide, inverse
from normkit.attention._scan import advance, scan
from normkit.catalog import method


class Block(NamedTuple):
    """The keys and values of the block that is being filled; empty where the next token starts one."""

    keys: Tensor
    values: Tensor


@method(
    "transnormer",
    paper="The Devil in Linear Transformer (Qin et al., 2022), arXiv 2210.10340",
    shape="N heads T C",
    over="heads C",
    inputs={"k": "N heads T C", "v": "N heads T C", "mask?": "N 1 1 T : bool"},
    example={"heads": 2},
)
class TransNormer(LinearCore):
    """Sum the values by activated products of queries and keys, and divide the joined heads by their root mean square.

    The denominator of linear attention makes its gradients unbounded; a norm of the result keeps them bounded. With
    block=None (NormAttention), act on q and k, and D = heads * head_dim:

        o_i = act(q_i) sum_j act(k_j)ᵀ v_j,    y = o / (|o| / sqrt(D) + eps) * norm.weight

    |o| is taken over all heads of a token. With block=w (DiagAttention, for early layers) attention stays in blocks of
    w tokens: ``o = act(q kᵀ / sqrt(head_dim)) v`` and the same norm, or ``o = softmax(q kᵀ / sqrt(head_dim)) v`` and
    none.

    Args:
        head_dim: features of a head.
        heads: number of heads.
        causal: query i sees keys j <= i.
        activation: ``"1+elu"``, ``"elu"`` (weights may be negative), ``"relu"``, ``"silu"`` or None. The paper pairs
            ``"elu"`` with blocks of ``"relu"`` (T1) and ``"1+elu"`` with blocks of softmax (T2), of 64 tokens.
        norm: ``"simple"``, or ``"rms"`` with the gain ``norm.weight``.
        eps: added to the root mean square, outside the root.
        block: tokens in a block; None for linear attention.
        softmax: softmax in the blocks instead of ``activation``.

    ``core(q, k, v, mask=None)``: all (N, heads, T, head_dim). ``mask`` broadcasts to (N, heads, 1, T), False at
    padding. ``step(q, k, v, state=None)`` takes one token (N, heads, head_dim) of the causal form, and returns its
    result and the state for the next: a matrix a head, or with blocks the keys and values of the current block.

    Blocks are as in the authors' code. Zero tokens fill up the last one; where nothing is causal they take part in its
    softmax. A future score is set to 0 before the activation, which hides it unless that is ``"1+elu"``.

    The Devil in Linear Transformer (Qin et al., 2022), arXiv 2210.10340.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = False,
        activation: str | None = "1+elu",
        norm: str = "simple",
        eps: float = 1e-8,
        block: int | None = None,
        softmax: bool = False,
    ):
        super().__init__(head_dim, heads, causal)
        self.activation = check.choice(self, "activation", activation, tuple(ACTIVATIONS))
        self.eps = check.eps(self, eps)
        self.block = None if block is None else check.size(self, "block", block)
        self.softmax = bool(softmax)
        if self.softmax and block is None:
            raise ValueError("TransNormer: softmax=True needs block, the number of tokens in a block, which is None")
        check.choice(self, "norm", norm, ("simple", "rms"))
        self.norm = None if self.softmax else _JointRMS(heads * head_dim, self.eps, gain=norm == "rms")

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v, same_length=True)
        seen = self._seen(mask, q, k)
        dtype = q.dtype
        q, k, v = accurate(q, k, v)
        with full_precision(q):
            o = self._linear(q, k, v, seen) if self.block is None else self._blocks(q, k, v, seen)
            return self._normalized(o).to(dtype)

    def _normalized(self, o: Tensor) -> Tensor:
        return o if self.norm is None else self.norm(o)

    def _linear(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
        act = ACTIVATIONS[self.activation]
        q, k, v = act(q), hide(act(k), seen), hide(v, seen)
        return scan(q, k, v) if self.causal else q @ (k.mT @ v)

    def _blocks(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
        length, width = q.shape[2], self.block or 1
        q, k, v = (_cut(hide(x, s), width) for x, s in ((q, None), (k, seen), (v, seen)))
        shown = None if seen is None else _cut(seen.expand(*seen.shape[:-2], length, 1), width, True).mT
        if self.causal:
            earlier = torch.ones(width, width, dtype=torch.bool, device=q.device).tril()
            shown = earlier if shown is None else shown & earlier
        return self._attend(q, k, v, shown).flatten(2, 3)[:, :, :length]

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, shown: Tensor | None) -> Tensor:
        if self.softmax:
            return softmax_formula(q, k, v, shown)
        scores = q * self.head_dim**-0.5 @ k.mT
        return ACTIVATIONS[self.activation](hide(scores, shown)) @ v

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, state: Tensor | Block | None = None
    ) -> tuple[Tensor, Tensor | Block]:
        """Take one token of the causal form: return its result and the state for the next."""
        if not self.causal:
            raise ValueError("TransNormer: step needs causal=True; without it every token looks at all others")
        if self.block is not None and not self.softmax and self.activation == "1+elu":
            raise ValueError("TransNormer: step has no meaning with activation='1+elu' in blocks, which see the future")
        self._check_token(q=q, k=k, v=v)
        dtype = q.dtype
        q, k, v = (x.unsqueeze(-2) for x in accurate(q, k, v))
        with full_precision(q):
            o, after = self._step_linear(q, k, v, state) if self.block is None else self._step_block(q, k, v, state)
            return self._normalized(o).squeeze(-2).to(dtype), after

    def _step_linear(self, q: Tensor, k: Tensor, v: Tensor, state) -> tuple[Tensor, Tensor]:
        act = ACTIVATIONS[self.activation]
        return advance(torch.zeros_like(k.mT * v) if state is None else state, act(q), act(k), v)

    def _step_block(self, q: Tensor, k: Tensor, v: Tensor, state) -> tuple[Tensor, Block]:
        if state is not None:
            k, v = torch.cat([state.keys, k], -2), torch.cat([state.values, v], -2)
        full = k.shape[-2] == self.block
        return self._attend(q, k, v, None), Block(k[..., :0, :], v[..., :0, :]) if full else Block(k, v)


class _JointRMS(nn.Module):
    """Divide (N, heads, T, head_dim) by the root mean square over the heads and features of a token."""

    def __init__(self, features: int, eps: float, gain: bool):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features)) if gain else None

    def forward(self, o: Tensor) -> Tensor:
        size = statistics.root(o.square().mean((1, 3), keepdim=True)) + self.eps
        y = o * inverse(size)
        return y if self.weight is None else y * self.weight.to(y.dtype).view(o.shape[1], 1, -1)


def _cut(x: Tensor, width: int, value: float = 0) -> Tensor:
    """Fill up the tokens and cut them into blocks: (N, heads, blocks, width, features)."""
    blocks = max(1, (x.shape[-2] + width - 1) // width)
    return F.pad(x, (0, 0, 0, blocks * width - x.shape[-2]), value=value).unflatten(-2, (blocks, width))
