"""FedLoG's classifier: a query moves towards prototypes, then the nearest class is told."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import catalog, check
from normkit.catalog import method
from normkit.federated.fedlog_branches import PAPER
from normkit.kinds import Method
from normkit.statistics import accurate


class Layer(nn.Module):
    """Messages from each prototype to each query, and how far each moves it."""

    def __init__(self, dim: int):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(dim + 1, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU())
        last = nn.Linear(dim, 1, bias=False)
        nn.init.xavier_uniform_(last.weight, gain=0.001)
        self.coordinate = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU(), last)

    def forward(self, query: Tensor, neighbors: Tensor, prototypes: Tensor) -> Tensor:
        """Return how far each query moves, (N, D)."""
        apart = prototypes - query.unsqueeze(1)
        square = apart.square().sum(2, keepdim=True)
        seen = torch.cat([neighbors.unsqueeze(1).expand(-1, len(prototypes), -1), square], 2)
        return (self._run(self.coordinate, self._run(self.message, seen)) * apart).mean(1)

    @staticmethod
    def _run(layers: nn.Sequential, x: Tensor) -> Tensor:
        for layer in layers:
            if isinstance(layer, nn.Linear):
                bias = None if layer.bias is None else layer.bias.to(x.dtype)
                x = nn.functional.linear(x, layer.weight.to(x.dtype), bias)
            else:
                x = layer(x)
        return x


@method(
    "fedlog-classifier",
    paper=PAPER,
    shape="N C",
    over="C",
    inputs={"neighbors": "N C", "prototypes": "6 C"},
    example={"way": 3, "shot": 2},
    exempt={
        "half float16": "at the line's weights, far from the start, distances are beyond 65504",
    },
)
class FedLoGClassifier(Method):
    """Classify by the distance to prototypes, after moving each query as its neighbourhood says.

    For nodes of graphs spread over clients. With q the layer-normalized query, p the prototypes and h the mean
    embedding of its neighbours, each layer does

        m_ij = silu(W2 silu(W1 [h_i, |p_j - q_i|²] + b1) + b2),    a_ij = v · silu(V2 silu(V1 m_ij + c1) + c2)
        q_i <- q_i + mean_j a_ij (p_j - q_i)

    and the result is log_softmax over classes of -|q - mean of the class' prototypes|².

    Args:
        dim: size of the embeddings.
        way: how many classes.
        shot: prototypes of each.
        layers: how often queries move.
        move: without, queries stay, as in the authors' code, whose moves are read from the wrong rows.

    ``classifier(query, neighbors, prototypes)``: (N, D), (N, D), zeros for an isolated node, and (way · shot, D), class
    after class. Returns log-probabilities (N, way). State: ``norm``, and for each of ``layers`` ``message`` and
    ``coordinate``.

    Subgraph Federated Learning for Local Generalization (Kim et al., 2025), arXiv 2503.03995.

    Differs from the authors' code in: queries move, and there is no third net that is never used.
    """

    def __init__(self, dim: int, way: int, shot: int, *, layers: int = 2, move: bool = True):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.way, self.shot = check.size(self, "way", way), check.size(self, "shot", shot)
        self.move = bool(move)
        self.norm = catalog.create("layernorm", dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(check.size(self, "layers", layers, least=0, most=1000)))

    def forward(self, query: Tensor, neighbors: Tensor, prototypes: Tensor) -> Tensor:
        """Return the log-probabilities of the classes."""
        check.values(self, "query", query, (None, self.dim), query)
        check.values(self, "neighbors", neighbors, query.shape, query)
        check.values(self, "prototypes", prototypes, (self.way * self.shot, self.dim), query)
        wide = accurate(query)
        near, p = neighbors.to(wide.dtype), prototypes.to(wide.dtype)
        q = self.norm(wide)
        for layer in self.layers:
            moves = layer(q, near, p)
            q = q + (moves if self.move else moves * 0)
        centers = p.view(self.way, self.shot, self.dim).mean(1)
        return torch.log_softmax(self._near(q, centers), 1).to(query.dtype)

    @staticmethod
    def _near(q: Tensor, centers: Tensor) -> Tensor:
        """-|q - c|² but for what all classes of a query have in common, which would cost digits far away."""
        middle = centers.mean(0)
        apart = centers - middle
        return 2 * (q - middle) @ apart.mT - apart.square().sum(1)
