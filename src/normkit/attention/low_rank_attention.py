"""Low-rank attention: a text summed up by the rank-1 scores of its tokens with its own mean."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.layers import Linear
from normkit.statistics import accurate, root

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "none": lambda x: x,
}
HIDDEN = -1e9  # the score of a token that is not seen


@method(
    "low-rank-attention",
    paper="Low Rank Factorization for Compact Multi-Head Self-Attention (Mehta et al., 2019), arXiv 1912.00835",
    evidence="abstract",
    shape="N T C",
    over="T",
    inputs={"mask?": "N T : bool"},
    example={"heads": 2, "out_features": 6},
    provenance="equations as in JohnGiorgi/compact-multi-head-self-attention-pytorch; the paper's body could not be "
    "read, and there is no authors' code",
)
class LowRankAttention(Method):
    """Sum up a text by attention of its mean to its tokens, each head's scores a product of two numbers.

    For text classification over a recurrent network, at a cost of T * heads, not T². With c the mean of the tokens
    that are seen,

        s_ht = activation((contextᵀ c)_h (tokenᵀ x_t)_h),     s_ht <- s_ht / ||s_.t|| over the HEADS of a token
        y_h = sum over t of softmax(s_h)_t x_t

    and with ``out_features`` the heads joined and mapped. No score is larger than 1, so attention stays soft; with one
    head only the sign of a score is left, and the parameters get no gradient.

    Args:
        dim: features of a token.
        heads: number of heads.
        activation: ``"tanh"``, ``"sigmoid"`` or ``"none"``.
        out_features: features of the result, a vector a text; None leaves a vector a head.

    ``module(x, mask=None)``: x (N, T, dim), ``mask`` boolean (N, T), True for what is seen -> (N, heads, dim), or
    (N, out_features). ``attend(x, mask=None)`` returns the weights (N, heads, T).

    Low Rank Factorization for Compact Multi-Head Self-Attention (Mehta, Rangwala, Ramakrishnan, 2019), arXiv
    1912.00835, there LAMA.

    Differs from the third-party code that it follows in: a token whose scores are all 0 keeps them, where that gives
    NaN, and a text of hidden tokens only gives 0.
    """

    def __init__(self, dim: int, heads: int, *, activation: str = "tanh", out_features: int | None = None):
        super().__init__()
        self.dim, self.heads = check.size(self, "dim", dim), check.size(self, "heads", heads)
        self.activation = check.choice(self, "activation", activation, tuple(ACTIVATIONS))
        out = None if out_features is None else check.size(self, "out_features", out_features)
        self.context, self.token = (
            nn.Parameter(nn.init.kaiming_uniform_(torch.empty(dim, heads), a=math.sqrt(5))) for _ in range(2)
        )
        self.project = None if out is None else Linear(heads * dim, out)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Sum up each text."""
        seen = self._hide(x, mask)
        y = self._weights(seen, mask) @ seen
        return (y if self.project is None else self.project(y.flatten(1))).to(x.dtype)

    def attend(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the weights of the tokens."""
        return self._weights(self._hide(x, mask), mask).to(x.dtype)

    def _hide(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The tokens, hidden ones as zeros."""
        check.values(self, "x", x, (None, None, self.dim), x)
        if mask is None:
            return accurate(x)
        check.mask(self, "mask", mask, x.shape[:2], x)
        return torch.where(mask.unsqueeze(-1), accurate(x), 0)

    def _weights(self, x: Tensor, mask: Tensor | None) -> Tensor:
        context, token = self.context.to(x.dtype), self.token.to(x.dtype)
        count = x.shape[1] if mask is None else mask.sum(1, keepdim=True).to(x.dtype).clamp(min=1e-9)
        mean = x.sum(1) / count
        products = accurate((mean @ context).unsqueeze(1) * (x @ token))  # of half precision under autocast
        scores = ACTIVATIONS[self.activation](products).mT
        length = root(scores.square().sum(1, keepdim=True))
        scores = scores / torch.where(length > 0, length, 1)
        hidden = scores if mask is None else scores.masked_fill(~mask.unsqueeze(1), HIDDEN)
        return torch.softmax(hidden, -1)
