"""Softplus attention: softplus in the place of exp, and a sharpening step for contexts longer than the training's."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check, ops
from normkit.attention._linear import accurate, hide, inverse
from normkit.attention._scores import keys_seen
from normkit.attention._window import Past, extend, within
from normkit.attention.core import Recurrent, visible
from normkit.catalog import method
from normkit.statistics import full_precision

UNIT = ops.Row(eps=1e-12, eps_place="floor")


@method(
    "softplus-attention",
    paper="Softplus Attention with Re-weighting (Gao and Spratling, 2025), arXiv 2501.13428",
    evidence="equations",
    shape="N heads T C",
    over="S C",
    inputs={"k": "N heads S C", "v": "N heads S C", "mask?": "N heads T S : bool"},
    example={"heads": 2, "power": 3},
    replaces=("softmax",),
    invariant=("scale of q", "scale of k"),
    provenance="the paper's equations, version 5 of the preprint; the authors' code could not be had",
)
class SoftplusAttention(Recurrent):
    """Turn scores into weights by softplus and division by their sum, with a scale that grows with the keys seen.

    For lengths beyond the training's: weights stay as sharp when more keys are seen. At the training's lengths
    ``softmax`` has fused kernels.

    Query i sees n_i keys,

        a_ij = softplus(ln(head_dim) ln(n_i) q_i · k_j / (|q_i| |k_j|)),    a_i <- a_i / max(sum_j a_ij, eps)

    and with a ``power`` weights below the average, which is 1 / n_i, are cut off and the others sharpened:

        b_ij = relu(n_i a_ij - 1)^power,    a_i <- b_i / max(sum_j b_ij, eps)

    with nothing subtracted in rows that see at most ``free_rows`` keys, or where nothing is causal in the first
    ``free_rows`` rows. Then y = a v.

    Args:
        head_dim: features of a head.
        heads: number of heads.
        causal: query i sees keys j <= i.
        power: None for the first step alone (LSSA), a number for both (LSSAR): 15 for long contexts, 3 best at the
            training length. May be changed after training, as ``core.power``.
        free_rows: how many rows are sharpened without the cut; a row that sees one key would lose it.
        eps: the least sum that is divided by; 0 is honoured.

    ``core(q, k, v, mask=None)`` as :class:`~normkit.attention.softmax.Softmax`; a key that is not seen counts for
    nothing, neither in n_i. The causal form has ``prefill(q, k, v, mask=None, state=None)``, which goes on from a state
    and returns the result and the state then, and ``step(q, k, v, state=None)`` for one token (N, heads, head_dim). The
    state are all keys and values.

    Softplus Attention with Re-weighting Boosts Length Extrapolation in Large Language Models (Gao and Spratling, 2025),
    arXiv 2501.13428; from the equations of version 5, since the authors' code could not be had.
    """

    state = Past

    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        causal: bool = True,
        power: float | None = None,
        free_rows: int = 3,
        eps: float = 1e-12,
    ):
        super().__init__(head_dim, heads, causal)
        self.power = None if power is None else check.number(self, "power", power, 0, open_low=True)
        self.free_rows = check.size(self, "free_rows", free_rows, 0)
        self.eps = check.eps(self, eps)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v, free_value=True)
        self._check_mask(mask, q, k)
        return self._attend(q, k, v, visible(mask, self.causal, q.shape[2], k.shape[2], q.device))

    def prefill(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, state: Past | None = None
    ) -> tuple[Tensor, Past]:
        """Attend from the tokens behind ``state``: return the result and the state behind them."""
        self._check(q, k, v, same_length=True, free_value=True)
        self._check_state(state, q)
        past = extend(state, k, v, self._mask_of_keys(mask, q, k))
        length, keys = q.shape[2], past.keys.shape[2]
        seen = within(keys, length, keys - length, q.device) & past.shown.mT
        return self._attend(q, past.keys, past.values, seen), past

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
        dtype = q.dtype
        q, k, v = accurate(q, k, v)
        with full_precision(q):
            cosines = ops.row_norm(q, rule=UNIT) @ ops.row_norm(k, rule=UNIT).mT
            number = keys_seen(seen, cosines)
            weights = F.softplus(cosines * (math.log(self.head_dim) * number.log()))
            weights = self._divide(hide(weights, seen), 1.0)
            if self.power is not None and k.shape[2]:
                weights = self._sharpen(weights, number, self.power)
            return (weights @ v).to(dtype)

    def _divide(self, weights: Tensor, floor: Tensor | float) -> Tensor:
        return weights * inverse(weights.sum(-1, keepdim=True).clamp(min=self.eps * floor))

    def _sharpen(self, weights: Tensor, number: Tensor, power: float) -> Tensor:
        rows = torch.arange(1, weights.shape[-2] + 1, device=weights.device).unsqueeze(-1)
        rows = number if self.causal or self.ordered else rows  # the first queries may be padding, or past
        excess = number * weights - (rows > self.free_rows).to(weights.dtype)
        above = excess > 0
        # a high power of a large excess would overflow; the division cancels this factor
        largest = torch.where(above, excess, 1).detach().amax(-1, keepdim=True).clamp(min=1)
        sharp = torch.where(above, torch.where(above, excess / largest, 1).pow(power), 0)
        return self._divide(sharp, largest.pow(-power))
