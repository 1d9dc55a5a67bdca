"""Embedding skip: some of the embedding is added back to the stream before each layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.depth import check_layer
from normkit.kinds import Method


@method(
    "embedding-skip",
    paper="nanochat (Karpathy, 2025), from modded-nanogpt (Jordan et al., 2024); no paper",
    evidence="library",
    shape="... C",
    over="",
    inputs={"embedding": "... C"},
    example={"layer": 1, "depth": 4},
)
class EmbeddingSkip(Method):
    """Scale the stream and add a share of the embedding to it, by two learned numbers.

    For language models after the recipe of nanochat, whose deep layers should still see the token itself. It comes from
    speed runs and has no paper, so compare with and without. Elsewhere the plain stream of ``pre-norm`` is the usual
    choice.

    It comes before each layer of a language model, once for both sublayers. With r = layer / max(depth - 1, 1),

        y = residual_scale * x + embedding_scale * embedding

    Args:
        layer, depth: the layer's place, from 0, and how many there are.

    ``module(x, embedding)``: both of one shape; ``embedding`` is what entered layer 0, normalized. State, two numbers:
    ``residual_scale``, at first 1.15 - 0.10 r, and ``embedding_scale``, 0.20 - 0.15 r. nanochat trains them without
    weight decay.

    nanochat (Karpathy, 2025), from modded-nanogpt (Jordan et al., 2024).
    """

    def __init__(self, layer: int = 0, depth: int = 1):
        super().__init__()
        check_layer(self, layer, depth)
        share = layer / max(depth - 1, 1)
        self.residual_scale = nn.Parameter(torch.tensor(1.15 - 0.10 * share))
        self.embedding_scale = nn.Parameter(torch.tensor(0.20 - 0.15 * share))

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        """Return the stream (..., dim) that enters the layer."""
        check.floating(self, x)
        check.values(self, "embedding", embedding, x.shape, x)
        return self.residual_scale.to(x.dtype) * x + self.embedding_scale.to(x.dtype) * embedding.to(x.dtype)
