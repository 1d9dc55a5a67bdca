"""RMSNorm with a gate: of Mamba 2, Qwen3-Next and their kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check, ops
from normkit.activation.token._grouped import grouped_row_norm, groups
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "sigmoid": torch.sigmoid}
BEFORE = {"norm_before_gate": True}


@method(
    "gated-rmsnorm",
    paper="Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State Space "
    "Duality (Dao, Gu, 2024), arXiv 2405.21060, there the norm of Mamba 2",
    evidence="library",
    shape="... C",
    over="C",
    inputs={"gate?": "... C"},
    replaces=("rmsnorm",),
    aliases={
        "rmsnorm-gated": {},
        "MambaRMSNormGated": {},
        "Qwen3NextRMSNormGated": BEFORE,
        "FusedRMSNormGated": {**BEFORE, "eps": 1e-5, "cast": "late"},
    },
    called={
        "transformers' MambaRMSNormGated": "hidden_size=dim group_size eps",
        "transformers' Qwen3NextRMSNormGated": "hidden_size=dim eps",
    },
    dialects={"norm_before_gate": (False, True), "activation": tuple(ACTIVATIONS), "cast": ("early", "late")},
    exempt={"batches rows": "torch's silu takes another path for the last entries of a call"},
)
class GatedRMSNorm(Norm):
    """Divide each vector by its root mean square, and multiply it by the activation of a gate, before or after.

    For the end of a state-space or linear-attention layer, between the mixing and the output map. A pretrained model
    has one of the two orders, and its weights do not fit the other. A layer without a gate takes ``rmsnorm``.

    Over the last axis, or over each group of it, act being SiLU,

        y = weight * n(x * act(gate))          n(z) = z / sqrt(mean(z²) + eps)        Mamba 2, Zamba 2, Nemotron-H
        y = weight * n(x) * act(gate)          with ``norm_before_gate``              Qwen3-Next, Falcon-H1

    Args:
        dim: size of the last axis.
        group_size: entries that share a mean square, a divisor of ``dim``; all by default.
        eps: added to the mean square under the root; 0 is honoured.
        norm_before_gate: normalize x, not its product with the gate.
        activation: of the gate, ``"silu"`` or ``"sigmoid"`` (Kimi Linear).
        affine: learn ``weight`` (dim,).
        cast: when a half-precision result is rounded first: ``"early"``, before the gain (Mamba, Qwen), or ``"late"``,
            at the end only (Falcon-H1, the fused one of flash-linear-attention).

    Inputs ``x`` and ``gate``, of one shape; without a gate it is an RMSNorm. Gate and statistics are in float32 at
    least.

    Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State Space Duality (Dao, Gu,
    2024), arXiv 2405.21060.
    """

    weight: nn.Parameter | None

    def __init__(
        self,
        dim: int,
        *,
        group_size: int | None = None,
        eps: float = 1e-6,
        norm_before_gate: bool = False,
        activation: str = "silu",
        affine: bool = True,
        cast: str = "early",
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.num_groups = groups(self, dim, group_size)
        self.rule = ops.Row(eps=check.eps(self, eps))
        self.norm_before_gate = bool(norm_before_gate)
        self.activation = check.choice(self, "activation", activation, tuple(ACTIVATIONS))
        self.cast = check.choice(self, "cast", cast, ("early", "late"))
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if affine else None)

    @staticmethod
    def sensible(group_size: Any = None, **_) -> bool:
        """Whether positional arguments can be meant so: the second is a size for Mamba, and eps for Qwen."""
        return group_size is None or isinstance(group_size, int)

    @property
    def variance_epsilon(self) -> float:
        """What transformers calls ``eps``."""
        return self.rule.eps

    def forward(self, x: Tensor, gate: Tensor | None = None) -> Tensor:
        """Normalize ``x`` and apply ``gate``."""
        check.features_last(self, x, self.dim)
        z = accurate(x)
        open_to = None if gate is None else self._open(gate, x)
        if open_to is not None and not self.norm_before_gate:
            z = z * open_to
        y = grouped_row_norm(z, self.num_groups, self.rule)
        y = y.to(x.dtype) if self.cast == "early" else y
        y = y if self.weight is None else y * self.weight
        if open_to is not None and self.norm_before_gate:
            y = y * open_to
        return y.to(x.dtype)

    def _open(self, gate: Tensor, x: Tensor) -> Tensor:
        check.values(self, "gate", gate, x.shape, x)
        return ACTIVATIONS[self.activation](accurate(gate))
