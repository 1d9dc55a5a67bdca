"""RMSNorm: divide by the root mean square."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.activation.token._row import RowNorm
from normkit.catalog import method
from normkit.ops.rope import Turns
from normkit.statistics import accurate

CASTS = ("early", "late", "factor", "native")


@method(
    "rmsnorm",
    paper="Root Mean Square Layer Normalization (Zhang and Sennrich, 2019), arXiv 1910.07467",
    shape="... C",
    over="C",
    replaces=("layernorm",),
    aliases={
        "root-mean-square-norm": {},
        "root-mean-square-layernorm": {},
        "LlamaRMSNorm": {},
        "MistralRMSNorm": {},
        "Qwen2RMSNorm": {},
        "Qwen3RMSNorm": {},
        "DeepseekV3RMSNorm": {},
        "T5LayerNorm": {},
        "GemmaRMSNorm": {"offset": 1.0},
        "Gemma2RMSNorm": {"offset": 1.0},
        "Gemma3RMSNorm": {"offset": 1.0},
        "Olmo2RMSNorm": {"cast": "late"},
        "Llama4TextL2Norm": {"affine": False},
        "DeepseekV4UnweightedRMSNorm": {"affine": False, "cast": "factor"},
    },
    called={
        "torch.nn.RMSNorm": "normalized_shape=dim eps elementwise_affine=affine device dtype",
        "timm.layers.RmsNorm": "channels=dim eps affine",
        "transformers' LlamaRMSNorm": "hidden_size=dim eps",
        "diffusers' RMSNorm": "dim eps elementwise_affine=affine bias",
    },
    dialects={
        "offset": (0.0, 1.0),
        "eps_inside": (True, False),
        "eps_floor": (False, True),
        "gain_first": (False, True),
        "cast": ("auto", *CASTS),
    },
    invariant=("scale",),
    peer=lambda dim: nn.RMSNorm(dim, eps=1e-6),
)
class RMSNorm(RowNorm):
    """Divide each vector by its root mean square and multiply by a learned gain.

    For transformers: the cheaper LayerNorm of Llama, Gemma and their kin, one statistic instead of two. Where a common
    shift of all features should not matter either, take ``layernorm``.

    Over the trailing axes ``dim``,

        y = x / sqrt(mean(x²) + eps) * (offset + weight) [+ bias]

    Args:
        dim: size of the last axis, or the sizes of the trailing axes that are normalized together.
        eps: keeps the root away from 0; 0 is honoured. None: the machine epsilon of the type of the
            statistics, float32 for half precision, as torch's default.
        p: the mean is taken over the first ``int(dim * p)`` entries only; all entries are divided (the paper's
            pRMSNorm); below 1 for a single axis.
        affine: learn a gain.
        bias: learn a shift; without effect when ``affine`` is off.
        offset: the gain is ``offset + weight``; 1 is Gemma's dialect, whose ``weight`` starts at 0.
        eps_inside: eps under the root (torch, Llama, Gemma), or added to the root (the paper's authors, with eps=1e-8).
        eps_floor: eps is the least length that is divided by: y = sqrt(n) x / max(||x||, eps) * (offset + weight) of n
            entries, as written with ``F.normalize``, whose eps is 1e-12.
        cast: when half precision is rounded: ``"early"``, before the gain (Llama), ``"late"``, after it (Gemma), or
            ``"auto"``: late with an offset, else early. ``"factor"`` rounds one over the root mean square, and every
            step behind it (DeepSeek V4 without a gain); ``"native"`` every step, the mean of squares too, as a module
            that never leaves the input's type. These two are there for models that were trained so: they are the
            less accurate, and in half precision no kernel has them.
        gain_first: multiply by the gain before the root mean square is taken, not after: y = n(x * (offset + weight)),
            as behind the sublayers of Muse Spark.
        heads: learn a gain and a shift for each of so many heads, ``(heads, dim)``, for queries and keys
            ``(..., heads, dim)``. No kernel has it.
        heads_first: heads lie before the tokens, ``(..., heads, T, dim)``, as in vit-pytorch's and x-transformers'
            attention.

    Root Mean Square Layer Normalization (Zhang and Sennrich, 2019), arXiv 1910.07467.

    Differs from the authors' code in: eps sits under the root unless ``eps_inside=False``; the full form is ``p=1``,
    not -1. From torch.nn.RMSNorm in: eps is 1e-6, as in Llama, where it is not given; theirs is None.
    Gemma's differs from Llama's in: its gain is 1 + weight, and half precision is rounded after the gain, not before;
    ``offset=1.0`` has both.
    """

    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float | None = 1e-6,
        p: float = 1.0,
        affine: bool = True,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        eps_floor: bool = False,
        cast: str = "auto",
        gain_first: bool = False,
        heads: int | None = None,
        heads_first: bool = False,
    ):
        check.number(self, "p", p, 0.0, 1.0, open_low=True)
        check.choice(self, "cast", cast, ("auto", *CASTS))
        if eps_floor and (p != 1 or not eps_inside or gain_first):
            raise ValueError("RMSNorm: eps_floor=True goes with p=1, eps_inside=True and gain_first=False alone")
        root = math.sqrt(math.prod(self.sizes(dim))) if eps_floor else 1.0  # a length is so many root mean squares
        rule = ops.Row(
            eps_place="floor" if eps_floor else "inside" if eps_inside else "outside",
            part=None if p == 1 else self._part(dim, p),
            offset=check.number(self, "offset", offset) * root,
            scale=root,
            cast=("late" if offset else "early") if cast == "auto" else cast,
        )
        gain = 1.0 - offset if affine else None
        super().__init__(dim, rule, gain=gain, bias=affine and bias, heads=heads, heads_first=heads_first)
        if gain_first and heads is not None:
            raise ValueError("RMSNorm: gain_first=True goes without heads")
        self.gain_first = bool(gain_first and affine)
        self.eps = eps

    @property
    def eps(self) -> Any:
        """The stabilizer; it may be set. None: it follows the type."""
        return None if self.follows_type else self.rule.eps

    @eps.setter
    def eps(self, value: float | None) -> None:
        self.rule = replace(self.rule, eps=0.0 if value is None else check.eps(self, value))
        self.follows_type = value is None
        plain = self.rule.scale == 1 and not self.follows_type and not self.gain_first
        self.direct = plain and self.heads is None  # one look less in each small call

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``, whose trailing axes have the sizes ``dim``."""
        if self.direct:
            return ops.row_norm(x, self.weight, self.bias, self.rule, self.shape, self)
        rule = self._rule_of(x) if self.follows_type else self.rule
        if self.gain_first:
            return ops.row_norm(self._gained(x), None, self.bias, rule, self.shape, self)
        if self.heads is not None:
            return self._by_heads(x, rule, first=self.heads_first).to(x.dtype)
        return ops.row_norm(x, self._gain, self.bias, rule, self.shape, self)

    def add_norm(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``norm(x + residual)`` and ``x + residual``.

        Without heads and ``gain_first`` in one pass over memory, forward and backward.
        """
        if self.gain_first or self.heads is not None:
            return self._add(x, residual)
        rule = self._rule_of(x) if self.follows_type else self.rule
        return ops.add_row_norm(x, residual, self._gain, self.bias, rule, self.shape, self)

    def norm_rotate(self, x: Tensor, angles: Turns, pairing: str = "halves") -> Tensor:
        """Normalize the last axis of ``x`` (..., T, dim), then turn it by ``angles``.

        Without heads and ``gain_first`` in one pass over memory.
        """
        rule = self._rule_of(x) if self.follows_type else self.rule
        if self.heads is not None:
            return ops.rotate(self._by_heads(x, rule, first=True), angles, pairing).to(x.dtype)
        check.ends_in(self, x, self.shape)
        if self.gain_first:
            return ops.norm_rotate(self._gained(x), None, self.bias, angles, rule=rule, pairing=pairing)
        return ops.norm_rotate(x, self._gain, self.bias, angles, rule=rule, pairing=pairing)

    def _gained(self, x: Tensor) -> Tensor:
        """An input times the gain, rounded where the model rounds that has it so: the gain, then the product."""
        check.ends_in(self, x, self.shape)
        return (accurate(x) * accurate(self.weight + self.rule.offset)).to(x.dtype)  # type: ignore[arg-type, operator]

    def _rule_of(self, x: Tensor) -> ops.Row:
        """The rule with the machine epsilon of the type that an input's statistics are taken in."""
        check.floating(self, x)
        return replace(self.rule, eps=torch.finfo(accurate(x[:0]).dtype).eps)

    def _part(self, dim: int | Sequence[int], p: float) -> int:
        if isinstance(dim, Sequence):
            raise ValueError(f"RMSNorm: p={p} takes part of one axis; dim must be a single size for it, not {dim!r}")
        return check.size(self, "int(dim * p)", int(check.size(self, "dim", dim) * p))

    @property
    def variance_epsilon(self) -> Any:
        """What transformers calls ``eps``."""
        return self.eps

    @variance_epsilon.setter
    def variance_epsilon(self, value: float | None) -> None:
        self.eps = value
