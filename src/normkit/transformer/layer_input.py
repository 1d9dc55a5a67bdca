"""Per-layer inputs: each layer of a model gets a small vector of each token by itself, as in Gemma 3n."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check
from normkit.layers import Linear
from normkit.residual.norms import NormName, make_norm
from normkit.transformer.attention import ACTIVATIONS, LinearName, make_linear
from normkit.transformer.gate import GATES

MAPS = {**ACTIVATIONS, **{name: activation for name, (activation, _) in GATES.items()}}


class LayerInputs(nn.Module):
    """A vector of each token for each layer: of a table of its own, and of the token's embedding e.

        i_l = (norm(W_l e / sqrt(dim)) + sqrt(features) table[token]_l) / sqrt(2)

    Args:
        dim, depth: features of an embedding; how many layers there are.
        features: of each vector.
        vocab: rows of the table; tokens beyond it have row 0. None: there is none, i_l = norm(W_l e / sqrt(dim)).
        norm: a norm by name, or as a function of the width.
    """

    def __init__(self, dim: int, depth: int, features: int, vocab: int | None, *, norm: NormName = "rmsnorm"):
        super().__init__()
        self.depth, self.features = depth, check.size(self, "layer_inputs", features)
        self.embedding = None
        if vocab is not None:
            self.embedding = nn.Embedding(check.size(self, "layer_vocab", vocab), depth * features)
        self.projection = Linear(dim, depth * features, bias=False)
        self.norm = make_norm(self, norm, features)

    def forward(self, x: Tensor, numbers: Tensor) -> list[Tensor]:
        """Return the vectors (B, T, features) of all layers, for embeddings ``x`` and the tokens' ``numbers``."""
        inputs = self.projection(x) * x.shape[-1] ** -0.5
        inputs = self.norm(inputs.unflatten(-1, (self.depth, self.features)))
        if self.embedding is not None:
            rows = torch.where(numbers < self.embedding.num_embeddings, numbers, 0)
            known = self.embedding(rows).unflatten(-1, (self.depth, self.features))
            inputs = (inputs + known * math.sqrt(self.features)) * math.sqrt(0.5)
        return list(inputs.unbind(-2))


class LayerInput(nn.Module):
    """What a layer makes of its own input: F(x, i) = output(act(gate(x)) * i).

    Args:
        dim, features: of the stream, and of the input.
        activation: that of the feedforward by name; of a gated one, what acts on the gate.
        linear: the linear maps are of another kind than torch's.
    """

    def __init__(self, dim: int, features: int, *, activation: str = "gelu", linear: LinearName = "linear"):
        super().__init__()
        self.features = check.size(self, "layer_inputs", features)
        self.activation = check.choice(self, "activation", activation, tuple(MAPS))
        self.gate = make_linear(self, linear, dim, features, False)
        self.output = make_linear(self, linear, features, dim, False)

    def forward(self, x: Tensor, given: Tensor) -> Tensor:
        """Map ``x`` (B, T, dim) by the input (B, T, features)."""
        return self.output(MAPS[self.activation](self.gate(x)) * given)
