"""Which of a model's parameters are what, for optimizers that treat them apart."""

from __future__ import annotations

from torch import nn


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Return the matrices inside a model: trained 2-D weights, but for embeddings' and the last layer's.

    What looks rows up, or turns the last features into scores, is a matrix by its shape alone: its rows belong to
    tokens and classes, and an optimizer that makes all directions of a step alike, such as Muon, is not for it.

    >>> model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 9))
    >>> [tuple(matrix.shape) for matrix in hidden_matrices(model)]
    [(8, 4)]
    """
    embedded = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)}
    matrices = [p for p in model.parameters() if p.dim() == 2 and p.requires_grad]
    weights = {id(w) for module in model.modules() if isinstance(w := getattr(module, "weight", None), nn.Parameter)}
    last = next((p for p in reversed(matrices) if id(p) in weights and id(p) not in embedded), None)
    return [p for p in matrices if id(p) not in embedded and p is not last]
