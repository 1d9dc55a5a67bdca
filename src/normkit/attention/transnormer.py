"""TransNormer: linear attention without a denominator, and attention in blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check, statistics
from normkit.attention._linear import ACTIVATIONS, LinearCore, accurate, hide, inverse
from normkit.attention._scan import scan
from normkit.attention.core import Recurrent, softmax_formula
from normkit.catalog import method


class Sums(NamedTuple):
    """The state of keys by values, (N, heads, head_dim, head_dim)."""

    sums: Tensor


class Block(NamedTuple):
    """The keys and values of the block that is being filled, and which are seen; empty where the next starts one."""

    keys: Tensor
    values: Tensor
    shown: Tensor


@method(
    "transnormer",
    paper="The Devil in Linear Transformer (Qin et al., 2022), arXiv 2210.10340",
    shape="N heads T C",
    over="heads C",
    inputs={"k": "N heads T C", "v": "N heads T C", "mask?": "N 1 1 T : bool"},
    example={"heads": 2},
)
class TransNormer(Recurrent, LinearCore):
    """Sum the values by activated products of queries and keys, and divide the joined heads by their root mean square.

    For linear attention whose training should stay stable: the usual denominator makes its gradients unbounded, a norm
    of the result keeps them bounded. Its successor ``lightning`` adds a decay with distance.

    With block=None (NormAttention), act on q and k, and D = heads * head_dim:

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
    padding. The causal form has ``prefill(q, k, v, mask=None, state=None)``, which goes on from a state and returns the
    result and the state then, and ``step(q, k, v, state=None)`` for one token (N, heads, head_dim). The state is a
    matrix a head, or with blocks the keys and values of the current block.

    Blocks are as in the authors' code, cut from the first token on. Zero tokens fill up the last one; where nothing is
    causal they take part in its softmax, and so does padding after a text, as zeros. A future score is set to 0 before
    the activation, which hides it unless that is ``"1+elu"``.

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
        self.state = Sums if block is None else Block
        self.softmax = bool(softmax)
        if self.softmax and block is None:
            raise ValueError("TransNormer: softmax=True needs block, the number of tokens in a block, which is None")
        check.choice(self, "norm", norm, ("simple", "rms"))
        self.norm = None if self.softmax else _JointRMS(heads * head_dim, self.eps, gain=norm == "rms")

    def no_state(self) -> str | None:
        """Why this core has no state, in a user's words, or None if it has one."""
        if self.causal and self.block is not None and not self.softmax and self.activation == "1+elu":
            return "step and prefill have no meaning with activation='1+elu' in blocks, which see the future"
        return super().no_state()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        return self._run(q, k, v, mask, None)[0]

    def prefill(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, state: Sums | Block | None = None
    ) -> tuple[Tensor, Sums | Block]:
        """Attend from the tokens behind ``state``: return the result and the state behind them."""
        self._check_state(state, q)
        return self._run(q, k, v, mask, state)

    def _run(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        self._check(q, k, v, same_length=True)
        seen = self._mask_of_keys(mask, q, k)
        dtype = q.dtype
        q, k, v = accurate(q, k, v)
        with statistics.full_precision(q):
            o, state = (self._linear if self.block is None else self._blocks)(q, k, v, seen, state)
            return (o if self.norm is None else self.norm(o)).to(dtype), state

    def _linear(
        self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, state: Sums | None
    ) -> tuple[Tensor, Sums | None]:
        act = ACTIVATIONS[self.activation]
        q, k, v = act(q), hide(act(k), seen), hide(v, seen)
        if not self.causal:
            return q @ (k.mT @ v), None
        o, sums = scan(q, k, v, state=None if state is None else state.sums)
        return o, Sums(sums)

    def _blocks(
        self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, state: Block | None
    ) -> tuple[Tensor, Block]:
        """Attend in blocks, the first of which ``state`` may have begun."""
        width, length = self.block or 1, q.shape[2]
        shown = torch.ones_like(k[..., :1], dtype=torch.bool) if seen is None else seen.expand(*k.shape[:3], 1)
        k, v, past = hide(k, seen), hide(v, seen), 0
        if state is not None:
            k, v, shown = (torch.cat(pair, 2) for pair in zip(state, (k, v, shown), strict=True))
            past = state.keys.shape[2]
        open_at = (past + length) // width * width
        rest = Block(*(x[:, :, open_at:] for x in (k, v, shown)))
        if self.softmax and not self.causal:  # what follows a text counts as what fills up its last block does
            shown = shown | (shown.cumsum(2) == shown.sum(2, keepdim=True))
        q, k, v = (_cut(x, width) for x in (F.pad(q, (0, 0, past, 0)), k, v))
        visible = None if seen is None and state is None else _cut(shown, width, True).mT
        if self.causal:
            earlier = torch.ones(width, width, dtype=torch.bool, device=q.device).tril()
            visible = earlier if visible is None else visible & earlier
        return self._attend(q, k, v, visible).flatten(2, 3)[:, :, past : past + length], rest

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, shown: Tensor | None) -> Tensor:
        if self.softmax:
            return softmax_formula(q, k, v, shown)
        scores = q * self.head_dim**-0.5 @ k.mT
        return ACTIVATIONS[self.activation](hide(scores, shown)) @ v


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
