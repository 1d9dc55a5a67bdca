"""Flow attention: linear attention that conserves flow."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.attention._linear import LinearCore, accurate, count, hide, inverse
from normkit.attention._scan import scan
from normkit.attention.core import Recurrent, check_seen
from normkit.catalog import method
from normkit.statistics import full_precision

LEAST = -1e30  # of a sum without terms; behind -inf torch's logcumsumexp has a wrong second derivative in forward mode


class Flows(NamedTuple):
    """The running sums of the causal form after some tokens; each has N in front."""

    seen: Tensor
    keys: Tensor
    queries: Tensor
    outgoing: Tensor
    incoming: Tensor
    competition: Tensor
    values: Tensor


@method(
    "flow-attention",
    paper="Flowformer: Linearizing Transformers with Conservation Flows (Wu et al., 2022), arXiv 2202.06258",
    shape="N heads T C",
    over="S T",
    inputs={"k": "N heads S C", "v": "N heads S C", "mask?": "N 1 1 S : bool", "query_mask?": "N 1 T 1 : bool"},
    example={"heads": 2},
)
class FlowAttention(Recurrent, LinearCore):
    """Fix what flows into each query and out of each key to 1, so that keys compete and queries share, in linear time.

    For sequences so long that the cost of ``softmax`` is too high, where near tokens need not matter most: competition
    keeps weights from evening out as in plain linear attention. It does not approximate softmax; a model has to be
    trained with it.

    With Q = sigmoid(q), K = sigmoid(k) and e = eps, sums over features unless written otherwise:

        I_i  = 1 / sum((Q_i + e) (sum_j K_j + e)),       O_j  = 1 / sum((K_j + e) (sum_i Q_i + e))
        I^_i = sum((Q_i + e) (sum_j O_j K_j + e)),       O^_j = clamp(sum((K_j + e) (sum_i I_i Q_i + e)))
        y_i  = sigmoid(I^_i T/S) (I_i Q_i) (sum_j K_jᵀ (S softmax_j(O^)_j v_j))

    The causal form replaces the sums over tokens by running sums and T and S by the number of tokens so far; what a key
    has won is settled when it comes.

    Args:
        head_dim: features of a head.
        heads: number of heads.
        causal: query i sees keys j <= i; needs as many keys as queries.
        eps: added to each feature of both factors.
        clamp: the largest conserved outgoing flow; beyond it no gradient passes, as happens to about half of the tokens
            at 1. The authors' code for reinforcement learning has 10.

    ``core(q, k, v, mask=None, query_mask=None)``: q (N, heads, T, head_dim), k and v (N, heads, S, head_dim). ``mask``
    broadcasts to (N, heads, 1, S), False where a key is padding; ``query_mask`` to (N, heads, T, 1), False where a
    query is, since queries too enter the sums. A causal core takes ``mask`` alone, for keys and queries.

    The causal form has ``prefill(q, k, v, mask=None, state=None)``, which goes on from a state and returns the result
    and the state then, and ``step(q, k, v, state=None)`` for one token (N, heads, head_dim). The state are the running
    sums.

    Flowformer: Linearizing Transformers with Conservation Flows (Wu et al., 2022), arXiv 2202.06258.

    Differs from the paper, as the authors' code does, in: eps and the clamp.
    """

    crossed = True
    state = Flows

    def __init__(self, head_dim: int, *, heads: int, causal: bool = False, eps: float = 1e-6, clamp: float = 1.0):
        super().__init__(head_dim, heads, causal)
        self.eps = check.eps(self, eps)
        self.clamp = check.number(self, "clamp", clamp, 0, open_low=True)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, query_mask: Tensor | None = None
    ) -> Tensor:
        """Attend."""
        if self.causal and query_mask is not None:
            raise ValueError("FlowAttention: query_mask must be None with causal=True; mask hides keys and queries")
        if self.causal:
            return self.prefill(q, k, v, mask)[0]
        self._check(q, k, v)
        sources, sinks = self._mask_of_keys(mask, q, k), self._sinks(query_mask, q)
        dtype = q.dtype
        q, k, v = accurate(q, k, v)
        with full_precision(q):
            return self._joint(
                hide(q.sigmoid(), sinks), hide(k.sigmoid(), sources), hide(v, sources), sources, sinks
            ).to(dtype)

    def prefill(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, state: Flows | None = None
    ) -> tuple[Tensor, Flows]:
        """Attend from the tokens behind ``state``: return the result and the state behind them."""
        self._check(q, k, v, same_length=True)
        self._check_state(state, q)
        seen = self._mask_of_keys(mask, q, k)
        dtype = q.dtype
        q, k, v = accurate(q, k, v)
        with full_precision(q):
            y, state = self._running(
                hide(q.sigmoid(), seen), hide(k.sigmoid(), seen), hide(v, seen), seen, state or _empty(q)
            )
        return y.to(dtype), state

    def _sinks(self, query_mask: Tensor | None, q: Tensor) -> Tensor | None:
        shape = (*q.shape[:3], 1)
        check_seen(self, "query_mask", query_mask, "(N, heads, T, 1)", shape, q)
        return (
            None if query_mask is None else query_mask.expand(torch.broadcast_shapes(query_mask.shape, (q.shape[2], 1)))
        )

    def _flow(self, x: Tensor, total: Tensor) -> Tensor:
        """The sum of (x + eps) (total + eps) over the features, written so that neither factor is kept."""
        spare = x.sum(-1, keepdim=True) + total.sum(-1, keepdim=True) + self.eps * self.head_dim
        return (x * total).sum(-1, keepdim=True) + self.eps * spare

    def _joint(self, q: Tensor, k: Tensor, v: Tensor, sources: Tensor | None, sinks: Tensor | None) -> Tensor:
        many, few = count(sources, k), count(sinks, q)
        incoming = inverse(self._flow(q, k.sum(-2, keepdim=True)))
        outgoing = inverse(self._flow(k, q.sum(-2, keepdim=True)))
        conserved = self._flow(q, (outgoing * k).sum(-2, keepdim=True))
        competing = self._flow(k, (incoming * q).sum(-2, keepdim=True)).clamp(-self.clamp, self.clamp)
        if sources is not None:
            competing = hide(competing, sources | ~sources.any(-2, keepdim=True), -math.inf)
        values = competing.softmax(-2) * many * v
        return (conserved * (few / many)).sigmoid() * ((incoming * q) @ (k.mT @ values))

    def _running(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, state: Flows) -> tuple[Tensor, Flows]:
        here = torch.ones_like(q[..., :1]) if seen is None else seen.to(q.dtype).expand_as(q[..., :1])
        counts, keys, queries = _sums(here, state.seen), _sums(k, state.keys), _sums(q, state.queries)
        n = counts.clamp(min=1)
        incoming, outgoing = n * inverse(self._flow(q, keys)), n * inverse(self._flow(k, queries))
        sent, received = _sums(outgoing * k, state.outgoing), _sums(incoming * q, state.incoming)
        competing = (self._flow(k, received) / n).clamp(-self.clamp, self.clamp)
        competition = torch.cat([state.competition, hide(competing, seen, LEAST)], -2).logcumsumexp(-2)
        won = n * (competing - hide(competition[..., 1:, :], seen)).exp()
        y, values = scan(incoming / n * q, k, won * v, state=state.values)
        y = (self._flow(q, sent) / n).sigmoid() * y
        if not q.shape[2]:
            return y, state
        sums = (x[..., -1:, :] for x in (counts, keys, queries, sent, received, competition))
        return y, Flows._make([*sums, values])


def _sums(x: Tensor, before: Tensor) -> Tensor:
    """The sum up to each token, and that before the first."""
    return x.cumsum(-2) + before


def _empty(q: Tensor) -> Flows:
    zero = q.new_zeros(*q.shape[:2], 1, q.shape[3])
    one = zero[..., :1]
    return Flows(one, zero, zero, zero, zero, one + LEAST, zero.mT * zero)
