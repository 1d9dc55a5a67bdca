"""ReGLA: gated linear attention with a bounded feature map and a gate that does not saturate."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.attention._heads import NORMS, HeadNorm
from normkit.attention._linear import LinearCore, accurate, hide
from normkit.attention._scan import gated_scan
from normkit.attention.core import Recurrent
from normkit.catalog import method
from normkit.statistics import full_precision


class Memory(NamedTuple):
    """The state of keys by values (N, heads, head_dim, head_dim), and the largest key so far (N, heads, 1, 1)."""

    sums: Tensor
    largest: Tensor


@method(
    "gated-linear",
    paper="ReGLA: Refining Gated Linear Attention (Lu et al., 2025), arXiv 2502.01578",
    evidence="equations",
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
    exempt={"causal": "keys are relative to the largest of all tokens, which a norm divides out where eps is near 0"},
)
class GatedLinear(Recurrent, LinearCore):
    """Sum the values of the past with a learned decay of each value feature, and normalize the result of each head.

    For causal linear attention whose gates shall not saturate: the second gate keeps the first one's slope from
    vanishing at both ends. With a decay that the head fixes, take ``lightning``.

    With d = head_dim, g = sigmoid(gate) and r = sigmoid(refine),

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

    ``prefill(q, k, v, gate, refine, mask=None, state=None)`` goes on from a state and returns the result and the state
    then; ``step(q, k, v, gate, refine, state=None)`` takes one token (N, heads, head_dim). The largest key of a
    sequence that is not over is not known: a step gives what ``core`` gives for the last token of the sequence so far.

    For a decoder set eps=1e-12: a norm then divides the largest key out. An eps of 1e-5 is of the size of the variance
    of h, so that ``core`` shows earlier tokens a large key to come. Of 1024 standard normal tokens of 64 features, one
    key made three times as large moves earlier results by 0.6 of 0.87, with 1e-12 by 2e-6. The first 40 steps are 0.14
    away from ``core``, with 1e-12 2e-7. Without a norm a larger key makes all earlier results smaller.

    ReGLA: Refining Gated Linear Attention (Lu et al., 2025), arXiv 2502.01578. A reconstruction from the equations: no
    authors' code was found, and that the norm is a LayerNorm is read between the lines.
    """

    forms = (True,)
    further = ("gate", "refine")
    state = Memory

    def __init__(
        self, head_dim: int, *, heads: int, norm: str | None = "layernorm", eps: float = 1e-5, causal: bool = True
    ):
        super().__init__(head_dim, heads, causal)
        check.choice(self, "norm", norm, (*NORMS, None))
        eps = check.eps(self, eps)
        self.norm = None if norm is None else HeadNorm(norm, head_dim, eps)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, refine: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Attend."""
        return self.prefill(q, k, v, gate, refine, mask)[0]

    def prefill(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        gate: Tensor,
        refine: Tensor,
        mask: Tensor | None = None,
        state: Memory | None = None,
    ) -> tuple[Tensor, Memory]:
        """Attend from the tokens behind ``state``: return the result and the state behind them."""
        self._check(q, k, v, same_length=True)
        for name, tensor in (("gate", gate), ("refine", refine)):
            check.values(self, name, tensor, q.shape, like=q)
        self._check_types(q, gate=gate, refine=refine)
        self._check_state(state, q)
        seen = self._mask_of_keys(mask, q, k)
        dtype = q.dtype
        q, k, v, gate, refine = accurate(q, k, v, gate, refine)
        sums, largest = self._raise(state, _largest(k, seen))
        k = hide((hide(k, seen) - hide(largest, largest > -math.inf)).exp(), seen)
        with full_precision(q):
            forget = hide(_log_forget(gate, refine), seen)
            y, sums = gated_scan(_query(q), k, hide(v, seen), value_gate=forget, state=sums)
        return self._output(y).to(dtype), Memory(sums, largest)

    def _raise(self, state: Memory | None, largest: Tensor) -> tuple[Tensor | None, Tensor]:
        """The sums of the past as its largest key would have them, were it the largest of all so far; and that."""
        if state is None:
            return None, largest
        largest = torch.maximum(largest, state.largest)
        past = state.largest > -math.inf
        return state.sums * hide((hide(state.largest, past) - hide(largest, past)).exp(), past), largest

    def _output(self, y: Tensor) -> Tensor:
        h = y / (math.e * math.sqrt(self.head_dim * (math.e**2 - 1)))
        return h if self.norm is None else self.norm(h)

    def step(  # type: ignore[override]
        self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, refine: Tensor, state: Memory | None = None
    ) -> tuple[Tensor, Memory]:
        """Take one token: return its result and the state for the next."""
        return self._one({"q": q, "k": k, "v": v, "gate": gate, "refine": refine}, state)


def _largest(k: Tensor, seen: Tensor | None) -> Tensor:
    """The largest feature of all keys of a head, (N, heads, 1, 1); -inf of none."""
    k = hide(k, seen, -math.inf)
    return F.pad(k.amax(-1), (0, 1), value=-math.inf).amax(-1)[..., None, None]


def _query(q: Tensor) -> Tensor:
    return (q - q.amax(-1, keepdim=True)).exp()


def _log_forget(gate: Tensor, refine: Tensor) -> Tensor:
    """log F, from F = g (g + 2 r (1 - g)): finite for every gate."""
    g, stays = F.logsigmoid(gate), F.logsigmoid(-gate)
    return g + torch.logaddexp(g, math.log(2) + F.logsigmoid(refine) + stays)
