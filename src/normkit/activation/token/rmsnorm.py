"""RMSNorm: divide by the root mean square."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from normkit import check, ops
from normkit.activation.token._row import RowNorm
from normkit.catalog import method


@method(
    "rmsnorm",
    paper="Root Mean Square Layer Normalization (Zhang and Sennrich, 2019), arXiv 1910.07467",
    shape="... C",
    over="C",
    replaces=("layernorm",),
    aliases={
        "LlamaRMSNorm": {},
        "T5LayerNorm": {},
        "GemmaRMSNorm": {"offset": 1.0},
    },
    called={
        "torch.nn.RMSNorm": "normalized_shape=dim eps elementwise_affine=affine device dtype",
        "timm.layers.RmsNorm": "channels=dim eps affine",
        "transformers' LlamaRMSNorm": "hidden_size=dim eps",
        "diffusers' RMSNorm": "dim eps elementwise_affine=affine bias",
    },
    dialects={"offset": (0.0, 1.0), "eps_inside": (True, False), "cast": ("auto", "early", "late")},
    invariant=("scale",),
    peer=lambda dim: nn.RMSNorm(dim, eps=1e-6),
)
class RMSNorm(RowNorm):
    """Divide each vector by its root mean square and multiply by a learned gain.

    For transformers: the cheaper LayerNorm of Llama, Gemma and their kin, one statistic instead of two. Over the
    trailing axes ``dim``,

        y = x / sqrt(mean(x²) + eps) * (offset + weight) [+ bias]

    Args:
        dim: size of the last axis, or the sizes of the trailing axes that are normalized together.
        eps: keeps the root away from 0; 0 is honoured.
        p: the mean is taken over the first ``int(dim * p)`` entries only; all entries are divided (the paper's
            pRMSNorm); below 1 for a single axis.
        affine: learn a gain.
        bias: learn a shift; without effect when ``affine`` is off.
        offset: the gain is ``offset + weight``; 1 is Gemma's dialect, whose ``weight`` starts at 0.
        eps_inside: eps under the root (torch, Llama, Gemma), or added to the root (the paper's authors, with eps=1e-8).
        cast: when a half-precision result is rounded: ``"early"``, before the gain (Llama), ``"late"``, after it
            (Gemma), or ``"auto"``: late with an offset, else early.

    Root Mean Square Layer Normalization (Zhang and Sennrich, 2019), arXiv 1910.07467.

    Differs from the authors' code in: eps sits under the root unless ``eps_inside=False``; the full form is ``p=1``,
    not -1. From torch.nn.RMSNorm in: eps is 1e-6 unless it is given, as in Llama.
    """

    def __init__(
        self,
        dim: int | Sequence[int],
        *,
        eps: float = 1e-6,
        p: float = 1.0,
        affine: bool = True,
        bias: bool = False,
        offset: float = 0.0,
        eps_inside: bool = True,
        cast: str = "auto",
    ):
        check.number(self, "p", p, 0.0, 1.0, open_low=True)
        check.choice(self, "cast", cast, ("auto", "early", "late"))
        rule = ops.Row(
            statistic="square",
            eps=check.eps(self, eps),
            eps_place="inside" if eps_inside else "outside",
            part=None if p == 1 else self._part(dim, p),
            offset=check.number(self, "offset", offset),
            cast=("late" if offset else "early") if cast == "auto" else cast,
        )
        super().__init__(dim, rule, gain=1.0 - offset if affine else None, bias=affine and bias)

    def _part(self, dim: int | Sequence[int], p: float) -> int:
        if isinstance(dim, Sequence):
            raise ValueError(f"RMSNorm: p={p} takes part of one axis; dim must be a single size for it, not {dim!r}")
        return check.size(self, "int(dim * p)", int(check.size(self, "dim", dim) * p))

    @property
    def variance_epsilon(self) -> float:
        """What transformers calls ``eps``."""
        return self.eps

    @variance_epsilon.setter
    def variance_epsilon(self, value: float) -> None:
        self.eps = value
