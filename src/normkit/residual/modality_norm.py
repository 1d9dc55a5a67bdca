"""Per-modality norms: each token is normalized with the gain of its own modality."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "modality-norm",
    paper="Mixture-of-Transformers: A Sparse and Scalable Architecture for Multi-Modal Foundation Models (Liang et "
    "al., 2024), arXiv 2411.04996",
    shape="N T C",
    over="C",
    inputs={"modality": "N T : index 2"},
    example={"modalities": 2},
    replaces=("rmsnorm", "layernorm"),
    provenance="the authors' norm and routing, whose merge of the modalities, as published, does not run",
    exempt={
        "batches gains": "torch adds up the gradient of a gain that is looked up in another order on more threads",
    },
)
class ModalityNorm(Norm):
    """Normalize each token by its own statistic, then apply the gain of its modality.

    For transformers that read text, images and speech in one sequence and keep the parameters of each modality apart: a
    statistic within one token knows no modality, so only the gain (and shift) is chosen. Where all modalities share one
    gain, take ``rmsnorm``.

    With m the modality of a token,

        y = norm(x) * weight[m] [+ bias[m]]

    Args:
        dim: size of the last axis.
        modalities: number of modalities.
        norm: ``"rmsnorm"`` or ``"layernorm"``, which has a shift too.
        eps: keeps the root away from 0; 0 is honoured.

    ``module(x, modality)``: x (N, T, dim), modality int64 (N, T) with entries 0 .. modalities - 1.

    Mixture-of-Transformers (2024), arXiv 2411.04996.

    Differs from the authors' code in: a token has exactly one modality; there the masks of two may overlap, and the
    first wins.
    """

    bias: nn.Parameter | None

    def __init__(self, dim: int, *, modalities: int, norm: str = "rmsnorm", eps: float = 1e-5):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.modalities = check.size(self, "modalities", modalities)
        check.choice(self, "norm", norm, ("rmsnorm", "layernorm"))
        self.rule = ops.Row(center=norm == "layernorm", eps=check.eps(self, eps))
        self.weight = nn.Parameter(torch.ones(modalities, dim))
        self.register_parameter("bias", nn.Parameter(torch.zeros(modalities, dim)) if self.rule.center else None)

    def forward(self, x: Tensor, modality: Tensor) -> Tensor:
        """Normalize the tokens ``x``, each with the gain of its ``modality``."""
        check.features_last(self, x, self.dim)
        check.index(self, "modality", modality, x.shape[:-1], self.modalities, x)
        y = ops.row_norm(x, rule=self.rule) * self.weight[modality].to(x.dtype)
        return y if self.bias is None else y + self.bias[modality].to(x.dtype)
