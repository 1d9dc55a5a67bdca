"""What the norms of one vector share: a rule that the op applies, a gain, a shift, and the fused residual addition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.norm import Norm
from normkit.ops.rope import Turns
from normkit.ops.row import row_values
from normkit.statistics import accurate


class RowNorm(Norm):
    """Normalize each vector by a statistic of its own; the numbers are :func:`normkit.ops.row_norm`'s.

    ``dim`` is the size of the last axis, or the sizes of the trailing axes that are normalized together. With ``heads``
    each entry of a further axis has a gain and a shift of its own: of that before them, or with ``heads_first`` of the
    next one. The gain is multiplied by the rule's scale: another unit of length.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    heads: int | None = None  # of those pickled before there was a choice
    heads_first = False

    def __init__(
        self,
        dim: int | Sequence[int],
        rule: ops.Row,
        *,
        gain: float | None = 1.0,
        bias: bool = False,
        heads: int | None = None,
        heads_first: bool = False,
    ):
        super().__init__()
        self.shape = self.sizes(dim)
        self.rule = rule
        self.heads = None if heads is None else check.size(self, "heads", heads)
        self.heads_first = bool(heads_first)
        if heads_first and heads is None:
            raise ValueError(f"{type(self).__name__}: heads_first=True needs heads, but heads is None")
        sizes = self.shape if heads is None else (heads, *self.shape)
        weight = None if gain is None else nn.Parameter(torch.full(sizes, gain))
        self.register_parameter("weight", weight)
        self.register_parameter("bias", nn.Parameter(torch.zeros(sizes)) if bias else None)

    def sizes(self, dim: int | Sequence[int]) -> tuple[int, ...]:
        """The sizes of the axes that are normalized together."""
        several = isinstance(dim, Sequence) and not isinstance(dim, str)
        sizes = tuple(check.size(self, "dim", d) for d in (dim if several else [dim]))  # type: ignore[union-attr]
        if not sizes:
            raise ValueError(f"{type(self).__name__}: dim must name at least one axis, not {dim!r}")
        return sizes

    @property
    def normalized_shape(self) -> tuple[int, ...]:
        """The sizes of the trailing axes that are normalized together."""
        return self.shape

    @property
    def elementwise_affine(self) -> bool:
        """Whether there is a learned gain."""
        return self.weight is not None

    @property
    def eps(self) -> float:
        """The stabilizer; it may be set."""
        return self.rule.eps

    @eps.setter
    def eps(self, value: float) -> None:
        self.rule = replace(self.rule, eps=check.eps(self, value))

    @property
    def offset(self) -> float:
        """What is added to the weight to make the gain."""
        return self.rule.offset / self.rule.scale

    @property
    def _gain(self) -> Tensor | None:
        """The gain of what the rule gives without its scale."""
        return self.weight if self.rule.scale == 1 or self.weight is None else accurate(self.weight) * self.rule.scale

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``, whose trailing axes have the sizes ``dim``."""
        return ops.row_norm(x, self._gain, self.bias, self.rule, self.shape, self)

    def add_norm(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``norm(x + residual)`` and ``x + residual``; without heads in one pass, forward and backward."""
        if self.heads is not None:
            return self._add(x, residual)
        return ops.add_row_norm(x, residual, self._gain, self.bias, self.rule, self.shape, self)

    def norm_rotate(self, x: Tensor, angles: Turns, pairing: str = "halves") -> Tensor:
        """Normalize the last axis of ``x`` (..., T, dim), then turn it by ``angles``, in one pass over memory.

        For queries and keys, head by head; half precision is rounded once, at the end.
        """
        if self.heads is not None:
            return ops.rotate(self._by_heads(x, self.rule, first=True), angles, pairing).to(x.dtype)
        check.ends_in(self, x, self.shape)
        return ops.norm_rotate(x, self._gain, self.bias, angles, rule=self.rule, pairing=pairing)

    def _by_heads(self, x: Tensor, rule: ops.Row, *, first: bool) -> Tensor:
        """Normalize ``x`` by the gains and shifts of its heads, before its result is rounded."""
        check.floating(self, x)
        sizes = (self.heads, *[None] * first, *self.shape)
        if x.dim() < len(sizes) or any(
            n not in (None, size) for n, size in zip(sizes, x.shape[-len(sizes) :], strict=True)
        ):
            wanted = ", ".join("T" if n is None else str(n) for n in sizes)
            hint = "; heads_first=True takes heads before tokens" if self.heads in x.shape[:-1] and not first else ""
            whose = f"{type(self).__name__}: x must end in axes of sizes ({wanted})"
            raise ValueError(f"{whose}, but its shape is {tuple(x.shape)}{hint}")
        weight, bias = (t.unsqueeze(1) if first and t is not None else t for t in (self._gain, self.bias))
        return row_values(x, weight, bias, rule, len(self.shape))

    def _add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``norm(x + residual)`` and ``x + residual`` where no kernel has both."""
        check.values(self, "residual", residual, x.shape, x)
        total = (x + residual).to(x.dtype)
        return self(total), total
