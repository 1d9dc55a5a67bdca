"""Flow attention: linear attention that conserves flow."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.attention._linear import LinearCore, accurate, count, full_precision, hide, inverse
from normkit.attention._scan import advance, scan
from normkit.catalog import method


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
class FlowAttention(LinearCore):
    """Fix what flows into each query and out of each key to 1, so that keys compete and queries share, in linear time.

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

    ``step(q, k, v, state=None)`` takes one token (N, heads, head_dim) of the causal form, and returns its result and
    the state for the next.

    Flowformer: Linearizing Transformers with Conservation Flows (Wu et al., 2022), arXiv 2202.06258.

    Differs from the paper, as the authors' code does, in: eps and the clamp.
    """

    def __init__(self, head_dim: int, *, heads: int, causal: bool = False, eps: float = 1e-6, clamp: float = 1.0):
        super().__init__(head_dim, heads, causal)
        self.eps = check.eps(self, eps)
        self.clamp = check.number(self, "clamp", clamp, 0, open_low=True)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, query_mask: Tensor | None = None
    ) -> Tensor:
        """Attend."""
        self._check(q, k, v, same_length=self.causal)
        sources = self._seen(mask, q, k)
        sinks = sources if self.causal else self._sinks(query_mask, q)
        if self.causal and query_mask is not None:
            raise ValueError("FlowAttention: query_mask must be None with causal=True; mask hides keys and queries")
        dtype = q.dtype
        q, k, v = accurate(q, k, v)
        q, k, v = hide(q.sigmoid(), sinks), hide(k.sigmoid(), sources), hide(v, sources)
        with full_precision(q):
            y = self._causal(q, k, v, sources) if self.causal else self._joint(q, k, v, sources, sinks)
        return y.to(dtype)

    def _sinks(self, query_mask: Tensor | None, q: Tensor) -> Tensor | None:
        wanted = (*q.shape[:3], 1)
        self._check_seen("query_mask", query_mask, "(N, heads, T, 1)", wanted, q)
        return (
            None if query_mask is None else query_mask.expand(torch.broadcast_shapes(query_mask.shape, (q.shape[2], 1)))
        )

    def _flow(self, x: Tensor, total: Tensor) -> Tensor:
        return ((x + self.eps) * (total + self.eps)).sum(-1, keepdim=True)

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

    def _causal(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
        here = torch.ones_like(q[..., :1]) if seen is None else seen.to(q.dtype)
        n = here.cumsum(-2).clamp(min=1)
        incoming = n * inverse(self._flow(q, k.cumsum(-2)))
        outgoing = n * inverse(self._flow(k, q.cumsum(-2)))
        conserved = self._flow(q, (outgoing * k).cumsum(-2)) / n
        competing = (self._flow(k, (incoming * q).cumsum(-2)) / n).clamp(-self.clamp, self.clamp)
        competition = hide(hide(competing, seen, -math.inf).logcumsumexp(-2), seen)
        won = n * (competing - competition).exp()
        return conserved.sigmoid() * scan(incoming / n * q, k, won * v)

    def step(self, q: Tensor, k: Tensor, v: Tensor, state: Flows | None = None) -> tuple[Tensor, Flows]:
        """Take one token of the causal form: return its result and the state for the next."""
        if not self.causal:
            raise ValueError("FlowAttention: step needs causal=True; without it every token looks at all others")
        self._check_token(q=q, k=k, v=v)
        dtype = q.dtype
        q, k, v = (x.unsqueeze(-2) for x in accurate(q, k, v))
        q, k = q.sigmoid(), k.sigmoid()
        state = self._empty(q) if state is None else state
        n, keys, queries = state.seen + 1, state.keys + k, state.queries + q
        incoming, outgoing = n * inverse(self._flow(q, keys)), n * inverse(self._flow(k, queries))
        sent, received = state.outgoing + outgoing * k, state.incoming + incoming * q
        competing = (self._flow(k, received) / n).clamp(-self.clamp, self.clamp)
        competition = torch.logaddexp(state.competition, competing)
        won = n * (competing - competition).exp()
        with full_precision(q):
            y, values = advance(state.values, incoming / n * q, k, won * v)
        y = (self._flow(q, sent) / n).sigmoid() * y
        return y.squeeze(-2).to(dtype), Flows(n, keys, queries, sent, received, competition, values)

    def _empty(self, q: Tensor) -> Flows:
        zero, one = torch.zeros_like(q), torch.zeros_like(q[..., :1])
        return Flows(one, zero, zero, zero, zero, one - math.inf, zero.mT * zero)
