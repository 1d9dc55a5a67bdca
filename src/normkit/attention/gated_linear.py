"""ReGLA: gated linear attention with a bounded feature map and a gate that does not saturate."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.attention._linear import LinearCore, accurate, feature_norm, full_precision, hide
from normkit.attention._scan import advance, gated_scan
from normkit.catalog import method


class Memory(NamedTuple):
    """The state of keys by values (N, heads, head_dim, head_dim), and the largest key so far (N, heads, 1, 1)."""

    sums: Tensor
    largest: Tensor


@method(
    "gated-linear",
    paper="ReGLA: Refining Gated Linear Attention (Lu et al., 2025), arXiv 2502.01578",
    shape="N heads T C",
    over="C",
    inputs={
        "k": "N heads T C",
        "v": "N heads T C",
        "gate": "N heads T C",
        "refine": "N heads T C",
        "mask?": "N 1 1 T : bool",
    },
    example={"heads": 2},
    provenance="from the paper's equations; no authors' code was found",
)
class GatedLinear(LinearCore):
    """Sum the values of the past with a learned decay of each value feature, and normalize the result of each head.

    For causal linear attention whose gates shall not saturate: the second gate keeps the first one's slope from
    vanishing at both ends. With d = head_dim, g = sigmoid(gate) and r = sigmoid(refine),

        f(q)_t = exp(q_t - max over its features),    f(k)_t = exp(k_t - max over all features and tokens of the head)
        F = (1 - r) g² + r (1 - (1 - g)²),            S_t = F_t[:, None] * S_{t-1} + v_t f(k_t)ᵀ
        h_t = S_t f(q_t) / (e sqrt(d (e² - 1))),      y_t = norm(h_t)

    Args:
        head_dim: features of a head.
        heads: number of heads.
        norm: ``"layernorm"``, ``"rmsnorm"`` or None: over the features of a head, ``norm.weight`` and ``norm.bias``
            shared by the heads.
        eps: added to the variance or mean square, under the root.
        causal: True; there is no other form.

    ``core(q, k, v, gate, refine, mask=None)``: all (N, heads, T, head_dim), the gates before their sigmoids; the bias
    of the layer that makes ``refine`` starts near 0. ``mask`` broadcasts to (N, heads, 1, T); a token where it is False
    leaves the state as it is.

    ``step(q, k, v, gate, refine, state=None)`` takes one token (N, heads, head_dim) and returns its result and the
    state. The largest key of a whole sequence is not known there: a step gives what ``core`` gives for the last token
    of the sequence so far. With a norm the difference to longer sequences is that of eps.

    ReGLA: Refining Gated Linear Attention (Lu et al., 2025), arXiv 2502.01578. A reconstruction from the equations: no
    authors' code was found, and that the norm is a LayerNorm is read between the lines.
    """

    forms = (True,)

    def __init__(
        self, head_dim: int, *, heads: int, norm: str | None = "layernorm", eps: float = 1e-5, causal: bool = True
    ):
        super().__init__(head_dim, heads, causal)
        check.choice(self, "norm", norm, ("layernorm", "rmsnorm", None))
        self.eps = check.eps(self, eps)
        self.norm = None if norm is None else _FeatureNorm(head_dim, self.eps, center=norm == "layernorm")

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, refine: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Attend."""
        self._check(q, k, v, same_length=True)
        for name, given in (("gate", gate), ("refine", refine)):
            check.values(self, name, given, q.shape, like=q)
        seen = self._seen(mask, q, k)
        dtype = q.dtype
        q, k, v, gate, refine = accurate(q, k, v, gate, refine)
        largest = hide(k, seen, -math.inf).amax((-2, -1), keepdim=True) if k.shape[2] else k.sum((-2, -1), keepdim=True)
        k = hide((hide(k, seen) - hide(largest, largest > -math.inf)).exp(), seen)
        with full_precision(q):
            y = gated_scan(_query(q), k, hide(v, seen), value_gate=hide(_log_forget(gate, refine), seen))
        return self._output(y).to(dtype)

    def _output(self, y: Tensor) -> Tensor:
        h = y / (math.e * math.sqrt(self.head_dim * (math.e**2 - 1)))
        return h if self.norm is None else self.norm(h)

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, refine: Tensor, state: Memory | None = None
    ) -> tuple[Tensor, Memory]:
        """Take one token: return its result and the state for the next."""
        self._check_token(q=q, k=k, v=v, gate=gate, refine=refine)
        dtype = q.dtype
        q, k, v, gate, refine = (x.unsqueeze(-2) for x in accurate(q, k, v, gate, refine))
        largest = k.amax(-1, keepdim=True)
        sums = torch.zeros_like(k.mT * v)
        if state is not None:
            largest = torch.maximum(largest, state.largest)
            sums = state.sums * (state.largest - largest).exp()
        with full_precision(q):
            forget = _log_forget(gate, refine).exp()
            y, sums = advance(sums, _query(q), (k - largest).exp(), v, value_decay=forget)
        return self._output(y).squeeze(-2).to(dtype), Memory(sums, largest)


class _FeatureNorm(nn.Module):
    """Layer norm or RMS norm over the last axis."""

    def __init__(self, features: int, eps: float, center: bool):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features)) if center else None

    def forward(self, h: Tensor) -> Tensor:
        return feature_norm(h, self.weight, self.bias, self.eps)


def _query(q: Tensor) -> Tensor:
    return (q - q.amax(-1, keepdim=True)).exp()


def _log_forget(gate: Tensor, refine: Tensor) -> Tensor:
    """log F, from F = g (g + 2 r (1 - g)): finite for every gate."""
    g, stays = F.logsigmoid(gate), F.logsigmoid(-gate)
    return g + torch.logaddexp(g, math.log(2) + F.logsigmoid(refine) + stays)
