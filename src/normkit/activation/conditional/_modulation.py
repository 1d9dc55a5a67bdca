"""What the norms of diffusion transformers share: a norm of tokens, and numbers that a condition gives each sample."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check, ops
from normkit.activation.conditional._map import run
from normkit.norm import Norm
from normkit.statistics import accurate


class ModulatedNorm(Norm):
    """Normalize tokens by ``rule``, and make ``pieces`` vectors of ``dim`` numbers from the condition of a sample.

    ``gain`` and ``shift`` are the norm's own; ``bias`` is that of the linear layer, and ``zero`` starts it at zero.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        dim: int,
        pieces: int,
        rule: ops.Row,
        condition_features: int | None = None,
        *,
        gain: bool = False,
        shift: bool = False,
        bias: bool = True,
        zero: bool = False,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        condition_features = dim if condition_features is None else condition_features
        self.condition_features = check.size(self, "condition_features", condition_features)
        self.pieces, self.rule = pieces, rule
        self.register_parameter("weight", nn.Parameter(torch.ones(dim)) if gain else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(dim)) if shift else None)
        self.modulation = nn.Linear(condition_features, pieces * dim, bias=bias)
        for parameter in self.modulation.parameters() if zero else ():
            nn.init.zeros_(parameter)

    def _normalize(self, x: Tensor, name: str = "x", samples: int | None = None) -> Tensor:
        """Normalize ``x`` (N, L, dim), in the type that statistics are taken in."""
        check.values(self, name, x, (samples, None, self.dim), x)
        return ops.row_norm(accurate(x), self.weight, self.bias, self.rule)

    def _vectors(self, condition: Tensor, x: Tensor, activation: bool = True, each: bool = False) -> tuple[Tensor, ...]:
        """The vectors that the linear layer makes for the samples of ``x``, each (N, dim).

        With ``each`` a condition of each token is taken too, and they are (N, L, dim).
        """
        tokens = each and isinstance(condition, Tensor) and condition.dim() == 3
        samples = x.shape[:2] if tokens else x.shape[:1]
        check.values(self, "condition", condition, (*samples, self.condition_features), x)
        vectors = run(self.modulation, F.silu(condition) if activation else condition)
        return vectors.to(accurate(x[:0]).dtype).chunk(self.pieces, dim=-1)


def of_tokens(vectors: Tensor) -> Tensor:
    """The numbers (N, dim) of samples with an axis of tokens; those of each token have it."""
    return vectors if vectors.dim() == 3 else vectors.unsqueeze(1)


def modulate(h: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Scale and shift the tokens (N, L, dim) of each sample by its own numbers (N, dim), or those of each token."""
    return torch.addcmul(of_tokens(shift), h, 1 + of_tokens(scale))
