"""LayerNorm: zero mean and unit variance within each vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from normkit import check, ops
from normkit.activation.token._row import RowNorm
from normkit.catalog import method


@method(
    "layernorm",
    paper="Layer Normalization (Ba, Kiros, Hinton, 2016), arXiv 1607.06450",
    evidence="library",
    shape="... C",
    over="C",
    replaces=("rmsnorm",),
    aliases={
        "ln": {},
        "OlmoLayerNorm": {"affine": False},
        "NemotronLayerNorm1P": {"offset": 1.0},
    },
    called={
        "torch.nn.LayerNorm": "normalized_shape=dim eps elementwise_affine=affine bias device dtype",
        "timm.layers.LayerNorm": "num_channels=dim eps affine",
    },
    dialects={"offset": (0.0, 1.0), "unbiased": (False, True), "eps_inside": (True, False)},
    invariant=("shift", "scale"),
    peer=lambda dim: nn.LayerNorm(dim),
)
class LayerNorm(RowNorm):
    """Give each vector zero mean and unit variance, then a learned gain and shift.

    For transformers and recurrent networks: each token has its own statistics, so neither batch size, padding nor other
    samples change its result. ``rmsnorm`` leaves out the mean, and in its paper is as good in less time. For
    convolutional networks with large batches ``batchnorm`` is the usual choice.

    Over the trailing axes ``dim``, with mu the mean and v the biased variance,

        y = (x - mu) / sqrt(v + eps) * (offset + weight) + bias

    Args:
        dim: size of the last axis, or the sizes of the trailing axes that are normalized together.
        eps: added to the variance under the root; 0 is honoured.
        affine: learn a gain and a shift.
        bias: learn a shift; without effect when ``affine`` is off.
        offset: the gain is ``offset + weight``; 1 is Nemotron's dialect, whose ``weight`` starts at 0.
        heads: learn a gain and a shift for each of so many heads, ``(heads, dim)``, for queries and keys
            ``(..., heads, dim)``, as in Cohere's and Chameleon's attention. No kernel has it.
        heads_first: heads lie before the tokens, ``(..., heads, T, dim)``.
        unbiased: divide the variance by n - 1 of n entries, as written by hand with ``x.var(-1)`` or ``x.std(-1)``.
        eps_inside: eps under the root, or added to the root: with ``unbiased``, and eps=1e-6, The Annotated
            Transformer's ``(x - mean) / (std + eps)``.

    Layer Normalization (Ba, Kiros, Hinton, 2016), arXiv 1607.06450.
    """

    unbiased = False  # of those pickled before there was a choice

    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        offset: float = 0.0,
        heads: int | None = None,
        heads_first: bool = False,
        unbiased: bool = False,
        eps_inside: bool = True,
    ):
        offset = check.number(self, "offset", offset)
        place = "inside" if eps_inside else "outside"
        rule = ops.Row(center=True, eps=check.eps(self, eps), offset=offset, eps_place=place)
        gain = 1.0 - offset if affine else None
        super().__init__(dim, rule, gain=gain, bias=affine and bias, heads=heads, heads_first=heads_first)
        self.unbiased = bool(unbiased)
        if unbiased and math.prod(self.shape) < 2:
            raise ValueError(f"LayerNorm: unbiased=True divides by n - 1; dim is {dim}, and must be at least 2")
        self.eps = eps

    @property
    def eps(self) -> float:
        """The stabilizer; it may be set."""
        return self._eps if self.unbiased else self.rule.eps

    @eps.setter
    def eps(self, value: float) -> None:
        self._eps = check.eps(self, value)
        rule = replace(self.rule, eps=value, offset=self.offset, scale=1.0)
        self.rule = rule.unbiased(math.prod(self.shape)) if self.unbiased else rule

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``, whose trailing axes have the sizes ``dim``, with the heads before them where there are."""
        if self.heads is None:  # said again here: a call less, which small inputs feel
            weight = self._gain if self.unbiased else self.weight
            return ops.row_norm(x, weight, self.bias, self.rule, self.shape, self)
        return self._by_heads(x, self.rule, first=self.heads_first).to(x.dtype)
